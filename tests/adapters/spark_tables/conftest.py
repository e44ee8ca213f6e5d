"""Tests that do not ask for Spark run as if there were none, even where another test has left a session."""

from __future__ import annotations

import pytest

from adapters.spark_tables.delta import memory as delta_memory


@pytest.fixture(autouse=True)
def _no_spark_unless_asked_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "spark" not in request.fixturenames:
        monkeypatch.setattr(delta_memory, "has_spark_session", lambda: False)
