"""Fixture `log`: an empty log, once in every kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from tests.changesource_sdk.changelog.logs_under_test import KINDS, Kind, LogUnderTest, postgres_store


@pytest.fixture(params=KINDS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogUnderTest]:
    kind: Kind = request.param
    if kind == "sqlite":
        made = LogUnderTest(kind, SqliteLogStore(tmp_path))
    else:
        made = LogUnderTest(kind, postgres_store(request.getfixturevalue("postgres").url(), tmp_path))
    yield made
    made.close()
