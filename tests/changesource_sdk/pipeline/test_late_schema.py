"""Schema changes that are read late: an adapter gets its own tables of the position, in every kind of source."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.pipeline.compaction.job import compact
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.pipeline.encoding.logged_schema import LoggedSchema
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.verifying.log_side import fold_spool
from protocol.codec import decode_changes
from protocol.fold.rows import FoldedTables
from tests.changesource_sdk.pipeline.positional_log import PositionalAdapter, PositionalLog
from tests.changesource_sdk.pipeline.runner_fixtures import Watched, running

MAPPED = {"note": {"name": "memo", "rename": {"title": "heading"}}}
HIDDEN = {"note": {"name": "memo", "select": ["id", "title"], "rename": {"title": "heading"}}}
PATH = f"{PositionalAdapter.__module__}:{PositionalAdapter.__name__}"
Make = Callable[[], Adapter]
States = list[Mapping[object, Mapping[str, object]]]


@pytest.fixture
def upstream(tmp_path: Path) -> PositionalLog:
    log = PositionalLog(tmp_path / "entries")
    log.commit(["put", [1, "one", "s1"]])
    return log


def source(folder: Path, *, ledger: bool = False, mapping: Mapping[str, object] | None = None) -> Make:
    path = str(folder / "ledger.db") if ledger else ""
    return SourceSpec(PATH, {"path": str(folder / "entries")}, path, mapping or {}).factory()


def states(seen: Watched, table: str) -> States:
    """The rows of a table after the snapshot and after each transaction."""
    replica = fold_spool(seen.log.snapshots()[-1].directory)
    taken: States = [copied(replica, table)]
    for stored in seen.log.read_after(seen.log.snapshots()[-1].watermark, 1 << 30):
        for chunk in stored.chunks():
            replica.apply(decode_changes(chunk))
        taken.append(copied(replica, table))
    return taken


def copied(replica: FoldedTables, table: str) -> dict[object, dict[str, object]]:
    return {key[0]: dict(row) for key, row in replica.tables.get(table, {}).items()}


def at(seen: Watched, number: int) -> bool:
    position = seen.log.state().position
    return position == number or (isinstance(position, dict) and position["store"] == number)


def change_the_schema(upstream: PositionalLog) -> None:
    """The transactions of the defect: add, write, rename, write; then a drop in front of it, which moves numbers."""
    upstream.commit(["add", "w1"])
    upstream.commit(["put", [2, "two", "s2", "old name"]])
    upstream.commit(["rename", "w1", "w2"])
    upstream.commit(["put", [3, "three", "s3", "new name"]], ["drop", "secret"], ["put", [4, "four", "after"]])


def expected(title: str) -> States:
    """The rows of the states that `change_the_schema` leads through."""
    one = {"id": 1, title: "one", "secret": "s1"}
    two = {"id": 2, title: "two", "secret": "s2", "w1": "old name"}
    renamed = {"id": 2, title: "two", "secret": "s2", "w2": "old name"}
    return [
        {1: one},
        {1: {**one, "w1": None}},
        {1: {**one, "w1": None}, 2: two},
        {1: {**one, "w2": None}, 2: renamed},
        {
            1: {"id": 1, title: "one", "w2": None},
            2: {"id": 2, title: "two", "w2": "old name"},
            3: {"id": 3, title: "three", "w2": "new name"},
            4: {"id": 4, title: "four", "w2": "after"},
        },
    ]


SOURCES = [
    pytest.param({}, "note", "title", id="plain"),
    pytest.param({"mapping": MAPPED}, "memo", "heading", id="mapped"),
    pytest.param({"ledger": True}, "note", "title", id="ledgered"),
    pytest.param({"ledger": True, "mapping": MAPPED}, "memo", "heading", id="both"),
]


@pytest.mark.parametrize(("kind", "table", "title"), SOURCES)
def test_changes_while_stopped_are_read_with_the_tables_of_their_time(
    kind: dict[str, object], table: str, title: str, upstream: PositionalLog, tmp_path: Path
) -> None:
    make = source(tmp_path, **kind)  # type: ignore[arg-type]
    with running(make, tmp_path / "state") as seen:
        seen.until_generation(1)
    change_the_schema(upstream)
    with running(make, tmp_path / "state") as seen:
        seen.until(lambda: at(seen, 5), "all entries")
        assert states(seen, table) == expected(title)
        assert seen.log.state().generation == 1


@pytest.mark.parametrize(("kind", "table", "title"), SOURCES)
def test_a_restart_between_any_two_transactions_changes_nothing(
    kind: dict[str, object], table: str, title: str, upstream: PositionalLog, tmp_path: Path
) -> None:
    make = source(tmp_path, **kind)  # type: ignore[arg-type]
    held_back = PositionalLog(tmp_path / "later")
    change_the_schema(held_back)
    lines = held_back.path.read_text().splitlines()
    with running(make, tmp_path / "state") as seen:
        seen.until_generation(1)
    for number, line in enumerate(lines, start=2):
        with upstream.path.open("a") as file:
            file.write(line + "\n")
        with running(make, tmp_path / "state") as seen:
            seen.until(lambda number=number: at(seen, number), f"entry {number}")  # type: ignore[misc]
            assert states(seen, table) == expected(title)[:number]
            assert seen.log.state().generation == 1


def test_a_change_of_a_column_that_mappings_hide_is_kept_too(upstream: PositionalLog, tmp_path: Path) -> None:
    make = source(tmp_path, mapping=HIDDEN)
    with running(make, tmp_path / "state") as seen:
        seen.until_generation(1)
        upstream.commit(["drop", "secret"])
        seen.until_position(2)
    upstream.commit(["add", "w1"], ["put", [2, "two", "w"]])
    with running(make, tmp_path / "state") as seen:
        seen.until_position(3)
        logged = LoggedSchema.from_json(seen.log.state().schema)
        assert logged.upstream is not None
        assert [table.column_names for table in logged.upstream] == [("id", "title", "w1")]
        assert logged.consumer.tables["memo"].column_names == ("id", "heading")
        assert states(seen, "memo")[-1] == {1: {"id": 1, "heading": "one"}, 2: {"id": 2, "heading": "two"}}


def test_the_tables_are_there_after_a_compaction(upstream: PositionalLog, tmp_path: Path) -> None:
    make = source(tmp_path, mapping=MAPPED)
    with running(make, tmp_path / "state") as seen:
        seen.until_generation(1)
        upstream.commit(["drop", "secret"], ["put", [2, "two"]])
        seen.until_position(2)
        assert compact(seen.store, LocalLane(), lambda: 0.0) is not None
        seen.until(lambda: len(seen.log.snapshots()) == 2, "the compacted snapshot")
        before = seen.log.snapshots()[-1]
    upstream.commit(["add", "w1"], ["put", [3, "three", "w"]])
    with running(make, tmp_path / "state") as seen:
        seen.until_position(3)
        assert LoggedSchema.from_json(before.schema).upstream is not None
        assert states(seen, "memo")[-1][3] == {"id": 3, "heading": "three", "w1": "w"}


def without_upstream(state: Path) -> None:
    """Make the log one of an earlier release, which did not keep the adapter's tables."""
    with closing(sqlite3.connect(SqliteLogStore(state).layout.log, isolation_level=None)) as db:
        (text,) = db.execute("SELECT schema FROM consumer_schema").fetchone()
        bare = {name: value for name, value in orjson.loads(text).items() if name != "upstream"}
        db.execute("UPDATE consumer_schema SET schema = ?", (orjson.dumps(bare).decode(),))


def test_a_log_of_an_earlier_release_is_continued_if_the_tables_are_the_same(
    upstream: PositionalLog, tmp_path: Path
) -> None:
    make = source(tmp_path, mapping=MAPPED)
    with running(make, tmp_path / "state") as seen:
        seen.until_generation(1)
    without_upstream(tmp_path / "state")
    upstream.commit(["put", [2, "two", "s2"]])
    with running(make, tmp_path / "state") as seen:
        seen.until_position(2)
        assert seen.log.state().generation == 1
        assert LoggedSchema.from_json(seen.log.state().schema).upstream is not None
        assert states(seen, "memo")[-1][2] == {"id": 2, "heading": "two", "secret": "s2"}


def test_a_log_of_an_earlier_release_is_read_again_if_the_tables_have_changed(
    upstream: PositionalLog, tmp_path: Path
) -> None:
    make = source(tmp_path, mapping=MAPPED)
    with running(make, tmp_path / "state") as seen:
        seen.until_generation(1)
    without_upstream(tmp_path / "state")
    change_the_schema(upstream)
    with running(make, tmp_path / "state") as seen:
        seen.until_generation(2)
        assert states(seen, "memo") == expected("heading")[-1:]


def test_a_mapped_table_may_be_missing_where_the_log_ends(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    database.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT)")
    database.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    spec = SourceSpec("adapters.sqlite:SqliteAdapter", {"path": str(tmp_path / "app.db")}, mapping=MAPPED)
    with running(spec.factory(), tmp_path / "state") as seen:
        seen.until_generation(1)
        database.execute("DROP TABLE note")
        seen.until(lambda: "memo" not in LoggedSchema.from_json(seen.log.state().schema).consumer.tables, "the drop")
    with running(spec.factory(), tmp_path / "state") as seen:
        database.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT)")
        database.execute("INSERT INTO note VALUES (7, 'again')")
        seen.until(lambda: states(seen, "memo")[-1:] == [{7: {"id": 7, "heading": "again"}}], "the new table")
        assert seen.error_code() is None
    database.close()
