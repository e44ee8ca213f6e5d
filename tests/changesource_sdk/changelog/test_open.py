"""The store of a log is the same wherever it is opened."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from changesource_sdk.changelog.open import open_store


@pytest.mark.parametrize("log", [None, "postgresql://user@127.0.0.1/none"], ids=["sqlite", "postgres"])
def test_a_task_in_another_directory_finds_a_state_that_was_given_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str | None
) -> None:
    (tmp_path / "task").mkdir()
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(open_store(Path("state"), log, "mine", "spool"))
    monkeypatch.chdir(tmp_path / "task")
    layout = pickle.loads(sent).layout
    assert layout.log == tmp_path / "state" / "log.sqlite"
    assert layout.spool == (tmp_path / "spool" / "mine" if log else tmp_path / "spool")
