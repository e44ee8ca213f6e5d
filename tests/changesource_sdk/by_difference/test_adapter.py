"""Adapters by difference: what a poll makes of two listings."""

import pickle
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from changesource_sdk import (
    COMPLETE,
    AdapterError,
    AddColumn,
    ByDifference,
    Column,
    ConfigurationError,
    CreateTable,
    Cursor,
    Delete,
    DropColumn,
    DropTable,
    Index,
    Insert,
    InvalidChange,
    Position,
    Table,
    Truncate,
    Update,
)
from changesource_sdk.by_difference import Item, listing
from changesource_sdk.by_difference.listing import ListingEnded
from tests.changesource_sdk.by_difference.shelf import NOTE, Pipeline, ShelfAdapter


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    pipeline = Pipeline(tmp_path)
    for id in range(1, 6):
        pipeline.upstream.put(id, f"text {id}")
    pipeline.snapshot()
    return pipeline


def test_one_poll_is_one_transaction_of_inserts_updates_and_deletes(pipeline: Pipeline) -> None:
    pipeline.upstream.put(6, "new")
    pipeline.upstream.put(2, "other")
    del pipeline.upstream.rows["note"][3]
    (transaction,) = pipeline.poll()
    assert list(transaction.changes) == [
        Delete("note", {"id": 3}),
        Update("note", {"id": 2, "text": "other"}),
        Insert("note", {"id": 6, "text": "new"}),
    ]


def test_a_poll_without_changes_yields_nothing_and_keeps_the_position(pipeline: Pipeline) -> None:
    assert pipeline.poll() == []
    pipeline.upstream.put(6, "new")
    assert len(pipeline.poll()) == 1


def test_after_a_transaction_the_next_call_leaves_the_pause_to_the_pipeline(pipeline: Pipeline) -> None:
    pipeline.upstream.put(6, "new")
    adapter = pipeline.adapter
    assert list(adapter.changes(pipeline.log.position)) == []  # the snapshot was a listing
    (transaction,) = adapter.changes(pipeline.log.position)
    pipeline.upstream.put(7, "newer")
    assert list(adapter.changes(transaction.position)) == []
    assert len(list(adapter.changes(transaction.position))) == 1


def test_a_listing_that_fails_half_way_infers_nothing(pipeline: Pipeline) -> None:
    def fail(number: int) -> None:
        if number == 2:
            raise ConnectionError("page 2 is not there")

    pipeline.upstream.put(1, "changed")
    pipeline.upstream.before_row = fail
    with pytest.raises(ConnectionError):
        pipeline.poll()
    pipeline.upstream.before_row = lambda number: None
    pipeline.sync()
    assert pipeline.log.snapshots == 1
    pipeline.check()


def test_a_listing_that_is_closed_half_way_infers_nothing(pipeline: Pipeline) -> None:
    pipeline.upstream.before_row = lambda number: pipeline.adapter.close()
    assert pipeline.poll() == []
    pipeline.upstream.before_row = lambda number: None
    pipeline.restart()
    assert pipeline.poll() == []


def test_close_ends_a_wait(pipeline: Pipeline) -> None:
    waiting = threading.Event()

    def wait(number: int) -> None:
        waiting.set()
        pipeline.adapter.wait(600)

    pipeline.upstream.before_row = wait
    polled: list[object] = []
    thread = threading.Thread(target=lambda: polled.append(pipeline.poll()))
    thread.start()
    assert waiting.wait(10)
    pipeline.adapter.close()
    thread.join(10)
    assert polled == [[]]


def test_a_snapshot_of_a_closed_adapter_ends_without_a_folder(pipeline: Pipeline) -> None:
    before = sorted(pipeline.state.iterdir())
    pipeline.adapter.close()
    with pytest.raises(ListingEnded):
        pipeline.adapter.snapshot()
    assert sorted(pipeline.state.iterdir()) == before


def test_a_listing_that_lacks_too_much_is_refused(pipeline: Pipeline) -> None:
    pipeline.adapter.most_deletes = 0.4
    for id in (1, 2):
        del pipeline.upstream.rows["note"][id]
    pipeline.sync()
    pipeline.check()
    pipeline.upstream.rows["note"].clear()
    with pytest.raises(AdapterError, match="too-many-deletes"):
        pipeline.poll()


class Repeating(ShelfAdapter):
    """Lists the first row again at the end, as pages do that move while they are read."""

    def rows(self, table: str) -> Iterator[Item]:
        rows = list(super().rows(table))
        yield from rows
        yield from rows[:1]


def test_a_row_that_is_listed_twice_is_one_row(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, Repeating)
    pipeline.upstream.put(1, "a")
    pipeline.upstream.put(2, "b")
    pipeline.snapshot()
    pipeline.check()
    pipeline.upstream.put(3, "c")
    pipeline.sync()
    pipeline.check()


class Unsure(ShelfAdapter):
    """Lists the first row again with another value."""

    def rows(self, table: str) -> Iterator[Item]:
        rows = list(self.upstream.rows[table].values())
        yield from rows
        yield {**rows[0], "text": "moved"}


def test_two_rows_with_the_same_key_are_refused_by_name(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, Unsure)
    pipeline.upstream.put(1, "a")
    with pytest.raises(AdapterError, match=r"repeated-key.*table note, key \[1\]"):
        pipeline.snapshot()
    assert list(pipeline.state.iterdir()) == []


@pytest.mark.parametrize(
    ("row", "code"),
    [({"text": "x"}, "key-missing"), ({"id": None, "text": "x"}, "key-missing"), ({"id": "1"}, "value-does-not-fit")],
)
def test_a_row_without_a_usable_key_is_refused_by_name(pipeline: Pipeline, row: dict[str, object], code: str) -> None:
    pipeline.upstream.rows["note"][7] = row
    with pytest.raises(InvalidChange, match=rf"{code}.*column id"):
        pipeline.poll()


def test_a_value_that_does_not_fit_is_left_to_the_pipeline(pipeline: Pipeline) -> None:
    pipeline.upstream.put(7, b"bytes")  # type: ignore[arg-type]
    (transaction,) = pipeline.poll()
    assert list(transaction.changes) == [Insert("note", {"id": 7, "text": b"bytes"})]
    # The pipeline refused it, so the position has not moved; the row was corrected meanwhile.
    pipeline.upstream.put(7, "text")
    pipeline.sync()
    pipeline.check()


@pytest.mark.parametrize("answer", [None, {"id": 1}, "rows", 5])
def test_what_is_no_listing_is_refused(pipeline: Pipeline, answer: object) -> None:
    pipeline.adapter.rows = lambda table: answer  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(AdapterError, match=r"broken-contract.*rows\(\) of table note"):
        pipeline.poll()


def test_a_table_without_key_is_refused(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.upstream.tables = [Table("note", [Column("text", str)], key=())]
    with pytest.raises(AdapterError, match="no-key"):
        pipeline.snapshot()


def test_an_author_who_forgets_the_state_is_told_how(tmp_path: Path) -> None:
    class Forgetful(ByDifference):
        def __init__(self) -> None:
            pass

        def tables(self) -> list[Table]:
            return [NOTE]

        def rows(self, table: str) -> list[Item]:
            return []

    with pytest.raises(ConfigurationError, match="no-state"):
        Forgetful().snapshot()


def test_schema_changes_come_with_the_rows_that_need_them(pipeline: Pipeline) -> None:
    wider = Table("note", [*NOTE.columns, Column("stars", int, default=5)])
    pipeline.upstream.tables = [wider]
    pipeline.upstream.put(1, "text 1", stars=3)
    (transaction,) = pipeline.poll()
    first, *rows = transaction.changes
    assert first == AddColumn("note", Column("stars", int))
    assert rows == [Update("note", {"id": 1, "text": "text 1", "stars": 3})]
    pipeline.log.append(transaction)
    pipeline.upstream.tables = [NOTE]
    pipeline.upstream.put(1, "text 1")
    (transaction,) = pipeline.poll()
    assert next(iter(transaction.changes)) == DropColumn("note", "stars")
    pipeline.log.append(transaction)
    assert pipeline.log.tables == pipeline.upstream.rows


def test_tables_come_and_go(pipeline: Pipeline) -> None:
    tag = Table("tag", [Column("id", int), Column("text", str)])
    pipeline.upstream.tables = [tag]
    pipeline.upstream.rows = {"tag": {}}
    pipeline.upstream.put(1, "red", "tag")
    (transaction,) = pipeline.poll()
    assert list(transaction.changes) == [
        DropTable("note"),
        CreateTable(tag),
        Insert("tag", {"id": 1, "text": "red"}),
    ]
    pipeline.log.append(transaction)
    pipeline.upstream.tables = [NOTE]
    pipeline.upstream.rows = {"note": {}}
    pipeline.upstream.put(1, "text 1")
    pipeline.sync()
    pipeline.check()
    assert pipeline.log.snapshots == 1


def test_another_type_of_a_column_sends_all_rows_again(pipeline: Pipeline) -> None:
    pipeline.upstream.tables = [Table("note", [Column("id", int), Column("text", "json")])]
    (transaction,) = pipeline.poll()
    changes = list(transaction.changes)
    assert Truncate(["note"]) in changes
    assert sum(isinstance(change, Insert) for change in changes) == 5
    pipeline.log.append(transaction)
    pipeline.check()
    assert pipeline.poll() == []


def test_another_key_drops_and_creates_the_table(pipeline: Pipeline) -> None:
    pipeline.upstream.tables = [replace(NOTE, key=("id", "text"))]
    (transaction,) = pipeline.poll()
    assert [type(change) for change in transaction.changes][:2] == [DropTable, CreateTable]
    pipeline.log.append(transaction)
    pipeline.check()


def test_values_of_a_unique_index_can_be_exchanged(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.upstream.tables = [replace(NOTE, indexes=[Index("note_text", ["text"], unique=True)])]
    pipeline.upstream.put(1, "a")
    pipeline.upstream.put(2, "b")
    pipeline.snapshot()
    pipeline.upstream.put(1, "b")
    pipeline.upstream.put(2, "a")
    (transaction,) = pipeline.poll()
    assert [type(change) for change in transaction.changes] == [Delete, Delete, Insert, Insert]
    pipeline.log.append(transaction)
    pipeline.check()


def test_a_listing_larger_than_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "BATCH_BYTES", 50)
    pipeline = Pipeline(tmp_path)
    for id in range(250):
        pipeline.upstream.put(id, "x" * (id % 60))
    pipeline.snapshot()
    pipeline.check()
    for id in range(0, 250, 7):
        del pipeline.upstream.rows["note"][id]
    for id in range(1, 250, 7):
        pipeline.upstream.put(id, "changed")
    pipeline.sync()
    pipeline.check()
    assert pipeline.log.snapshots == 1


def test_a_used_adapter_travels(pipeline: Pipeline) -> None:
    copy = pickle.loads(pickle.dumps(pipeline.adapter))
    pipeline.upstream.put(6, "new")
    assert len(list(copy.changes(pipeline.log.position))) == 1


class Tracking(ShelfAdapter):
    """Keeps a list of changes: a cursor is a number of changes; `complete` makes the answer a complete listing."""

    changed: ClassVar[list[int]] = []
    complete: ClassVar[bool] = False

    def rows(self, table: str) -> Iterator[Item]:
        yield Cursor(len(self.changed))
        yield from super().rows(table)

    def changed_since(self, table: str, cursor: Position) -> Iterable[Item] | None:
        assert isinstance(cursor, int)
        return self._changed_since(table, cursor)

    def _changed_since(self, table: str, cursor: int) -> Iterator[Item]:
        if self.complete:
            yield COMPLETE
            yield from self.rows(table)
            return
        for id in self.changed[cursor:]:
            row = self.upstream.rows[table].get(id)
            yield Delete(table, {"id": id}) if row is None else row
        yield Cursor(len(self.changed))


@pytest.fixture
def tracking(tmp_path: Path) -> Iterator[Pipeline]:
    Tracking.changed, Tracking.complete = [], False
    pipeline = Pipeline(tmp_path, Tracking)
    for id in range(1, 4):
        pipeline.upstream.put(id, "old")
    pipeline.snapshot()
    yield pipeline
    Tracking.changed, Tracking.complete = [], False


def test_changed_since_reads_only_what_changed(tracking: Pipeline) -> None:
    tracking.upstream.put(1, "new")
    tracking.upstream.put(2, "unnoticed")
    del tracking.upstream.rows["note"][3]
    Tracking.changed += [1, 1, 3, 9]
    tracking.sync()
    assert tracking.rows() == {1: {"id": 1, "text": "new"}, 2: {"id": 2, "text": "old"}}
    assert tracking.poll() == []


def test_a_complete_listing_at_intervals_finds_what_changed_since_does_not_report(tracking: Pipeline) -> None:
    del tracking.upstream.rows["note"][3]
    tracking.sync()
    assert 3 in tracking.rows()
    tracking.adapter.list_interval = 0.0
    tracking.sync()
    tracking.check()


def test_changed_since_may_answer_with_a_complete_listing(tracking: Pipeline) -> None:
    del tracking.upstream.rows["note"][2]
    Tracking.complete = True
    tracking.sync()
    tracking.check()


def test_a_cursor_goes_back_with_the_rows_that_were_lost(tracking: Pipeline) -> None:
    tracking.upstream.put(1, "new")
    Tracking.changed.append(1)
    assert len(tracking.poll()) == 1  # never appended: the process died
    tracking.restart()
    tracking.sync()
    tracking.check()
    assert tracking.log.snapshots == 1


def test_a_new_column_is_read_from_rows_that_have_not_changed(tracking: Pipeline) -> None:
    tracking.upstream.tables = [Table("note", [*NOTE.columns, Column("stars", int)])]
    for id in (1, 2, 3):
        tracking.upstream.put(id, "old", stars=id)
    tracking.sync()
    tracking.check()


def test_complete_after_rows_is_refused(tracking: Pipeline) -> None:
    tracking.adapter.changed_since = lambda table, cursor: [{"id": 1}, COMPLETE]  # type: ignore[method-assign]
    with pytest.raises(AdapterError, match=r"broken-contract.*COMPLETE"):
        tracking.poll()
