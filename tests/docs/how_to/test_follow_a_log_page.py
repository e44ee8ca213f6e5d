"""The page on logs with schema events: its adapter reads old entries with the columns of their time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from changesource_sdk import Column, ResyncRequired, RowsPartition, Snapshot, Table
from tests.changesource_sdk.pipeline.runner_fixtures import running
from tests.changesource_sdk.pipeline.test_late_schema import states
from tests.docs.fences import as_module, block

WHERE = "docs/how-to/follow-a-log.md"
NOTE = Table("note", [Column("id", int), Column("title", str)])


def commit(log: Path, *entries: Sequence[object]) -> None:
    with log.open("a") as file:
        file.write(json.dumps(entries) + "\n")


@pytest.fixture
def adapter_class(tmp_path: Path) -> Any:
    page = as_module(block(WHERE, "# entry_log.py"), tmp_path / "entry_log.py").EntryLog

    class WithTables(page):  # type: ignore[misc, valid-type]
        """The page leaves out what every adapter has."""

        def tables(self) -> Sequence[Table]:
            return [NOTE]

        def snapshot(self) -> Snapshot:
            return Snapshot(0, [RowsPartition("note", [])])

    return WithTables


def test_entries_are_read_with_the_columns_of_their_time(adapter_class: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    with running(lambda: adapter_class(log), tmp_path / "state") as seen:
        seen.until_generation(1)
        commit(log, ["add", "w1"])
        seen.until_position(1)
    commit(log, ["row", [1, "one", "old"]])
    commit(log, ["rename", "w1", "w2"], ["row", [2, "two", "new"]], ["drop", "title"], ["row", [3, "last"]])
    with running(lambda: adapter_class(log), tmp_path / "state") as seen:
        seen.until_position(3)
        assert states(seen, "note")[2:] == [
            {1: {"id": 1, "title": "one", "w1": "old"}},
            {1: {"id": 1, "w2": "old"}, 2: {"id": 2, "w2": "new"}, 3: {"id": 3, "w2": "last"}},
        ]


def test_a_log_that_is_shorter_is_a_lost_position(adapter_class: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    adapter = adapter_class(log)
    adapter.use_tables([NOTE])
    with pytest.raises(ResyncRequired):
        list(adapter.changes(5))
