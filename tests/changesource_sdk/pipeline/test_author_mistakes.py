"""What an author reads who makes one of the common mistakes: one message that names the method and tells the fix.

Every adapter here is a small, right one but for the one thing its entry in `MISTAKES` says. The messages are those of
the stage file, which `serve`, `check` and `doctor` print as they are.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import changesource_sdk
from changesource_sdk import Column, Delete, Insert, RowsPartition, Snapshot, Table, Transaction
from tests.changesource_sdk.pipeline.runner_fixtures import running

TODO = Table("todo", [Column("id", str), Column("title", str), Column("points", int)])
INSIDE = [path.name for path in Path(changesource_sdk.__file__).parent.rglob("*.py")]
ROW = {"id": "a", "title": "write", "points": 3}


class Right:
    """The adapter without the mistake."""

    def tables(self) -> Any:
        return [TODO]

    def snapshot(self) -> Any:
        return Snapshot(0, [RowsPartition("todo", [ROW])])

    def changes(self, after: Any) -> Any:
        if after == 0:
            yield Transaction(1, [Insert("todo", {**ROW, "id": "b"})])


def tables_gives(value: Any) -> type[Right]:
    return type("Wrong", (Right,), {"tables": lambda self: value})


def snapshot_gives(value: Any) -> type[Right]:
    return type("Wrong", (Right,), {"snapshot": lambda self: value})


def rows_are(*rows: Any) -> type[Right]:
    return snapshot_gives(Snapshot(0, [RowsPartition("todo", list(rows))]))


def changes_gives(value: Any) -> type[Right]:
    return type("Wrong", (Right,), {"changes": lambda self, after: value})


def transaction_is(*changes: Any) -> type[Right]:
    return changes_gives([Transaction(1, list(changes))])


class FailsInItsOwnCode(Right):
    def snapshot(self) -> Any:
        return {"todo": []}["tdo"]


class FailsInALibrary(Right):
    def changes(self, after: Any) -> Any:
        datetime.datetime.fromisoformat("yesterday")


MISTAKES: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "one table instead of a list": (tables_gives(TODO), "gave a Table instead of a list", "tables()", "return a list"),
    "tables as names": (tables_gives(["todo"]), "gave a str in its list", "tables()", 'Table("issue"'),
    "no column for the key": (
        tables_gives([Table("todo", [Column("key", str)])]),
        "the key names 'id', which is none of its columns",
        "table todo",
        "key=(…)",
    ),
    "rows instead of a snapshot": (
        snapshot_gives([ROW]),
        "gave a list instead of a Snapshot",
        "snapshot()",
        "position",
    ),
    "rows instead of partitions": (
        snapshot_gives(Snapshot(0, [ROW])),  # type: ignore[list-item]
        "one of its partitions is a dict",
        "snapshot()",
        "RowsPartition",
    ),
    "one partition instead of a list": (
        snapshot_gives(Snapshot(0, RowsPartition("todo", [ROW]))),  # type: ignore[arg-type]
        "its partitions are a RowsPartition instead of a list",
        "snapshot()",
        "RowsPartition",
    ),
    "a table that is not declared": (
        snapshot_gives(Snapshot(0, [RowsPartition("todos", [ROW])])),
        "no table 'todos'; did you mean 'todo'?",
        "",
        "declare it in tables()",
    ),
    "a column that is not declared": (
        rows_are({**ROW, "titel": "x"}),
        "no column 'titel'; did you mean 'title'?",
        "table todo",
        "declare it in tables()",
    ),
    "tuples for rows": (rows_are(("a", "write", 3)), "a tuple is given where a row", "table todo", "give a dict"),
    "a text for a number": (
        rows_are({**ROW, "points": "3"}),
        "a value of type str where a 64-bit integer is needed",
        "table todo, column points (int8), row id='a'",
        "give an int",
    ),
    "null in the key": (
        rows_are({**ROW, "id": None}),
        "null in a column that is not optional",
        "table todo, column id",
        "give a value",
    ),
    "no yield": (
        changes_gives(None),
        "gave nothing (None) instead of transactions; did you forget",
        "changes()",
        "yield",
    ),
    "changes without their transaction": (
        changes_gives([Insert("todo", ROW)]),
        "gave an Insert instead of a Transaction",
        "changes()",
        "yield Transaction(position",
    ),
    "one change instead of a list": (
        changes_gives([Transaction(1, Insert("todo", ROW))]),  # type: ignore[arg-type]
        "the changes of transaction 1 are an Insert instead of a list",
        "changes()",
        "yield Transaction(position",
    ),
    "a dict for a change": (transaction_is(ROW), "holds a dict, which is no change", "changes()", "put Insert, Update"),
    "a delete without the key": (
        transaction_is(Delete("todo", {"title": "write"})),
        "the key column 'id' is missing",
        "table todo",
        "give all key columns: id",
    ),
    "a key that is only its value": (
        transaction_is(Delete("todo", "a")),  # type: ignore[arg-type]
        "a str is given where a row",
        "table todo",
        "give a dict",
    ),
    "a position that is no JSON": (
        changes_gives([Transaction(datetime.date(2026, 1, 1), [Insert("todo", ROW)])]),  # type: ignore[arg-type]
        "a position of type date cannot be stored",
        "",
        "numbers, strings, lists",
    ),
    "a mistake in its own code": (
        FailsInItsOwnCode,
        "KeyError: 'tdo'",
        "test_author_mistakes.py line",
        "see the message",
    ),
    "a library that refuses": (FailsInALibrary, "Invalid isoformat string", "test_author_mistakes.py line", "see the"),
}


@pytest.fixture
def error(tmp_path: Path) -> Callable[[Callable[[], Any]], dict[str, str]]:
    """What the pipeline reports when it runs an adapter."""

    def report(make: Callable[[], Any]) -> dict[str, str]:
        with running(make, tmp_path / "state") as seen:
            seen.until(lambda: seen.error_code() is not None, "the error")
            found = seen.stage()["error"]
        assert isinstance(found, dict)
        return found

    return report


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_fix(mistake: str, error: Callable[[Callable[[], Any]], dict[str, str]]) -> None:
    make, said, where, fix = MISTAKES[mistake]
    told = error(make)
    assert said in told["message"]
    assert where in told["where"]
    assert fix in told["fix"]
    text = " ".join(told.values())
    assert "Traceback" not in text
    assert not [name for name in INSIDE if name in text]


def test_the_adapter_without_a_mistake_runs(tmp_path: Path) -> None:
    with running(Right, tmp_path / "state") as seen:
        seen.until_position(1)
        assert seen.error_code() is None
