"""What a compacted snapshot holds: exactly what a consumer holds that followed the log from the old one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    Change,
    CreateTable,
    Delete,
    DropColumn,
    DropTable,
    Insert,
    Position,
    RenameTable,
    Row,
    RowsPartition,
    Snapshot,
    Transaction,
    Truncate,
    Update,
)
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.pipeline.compaction.fold import Sorting, Tie, fold, groups_of, has_partial_moves, scan
from changesource_sdk.pipeline.compaction.job import history_of, wire_inserts
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.pipeline.encoding.schema_frames import existing_schema, snapshot_schema
from changesource_sdk.pipeline.encoding.transactions import TransactionEncoder
from changesource_sdk.schema import Column, Index, Table
from protocol.framing import unframe
from tests.changesource_sdk.pipeline.changing_world import TABLES, World, WorldAdapter
from tests.changesource_sdk.pipeline.compaction.compacted import CompactedLog
from tests.changesource_sdk.pipeline.sqlite_replica import SqliteReplica

ISSUE = Table("issue", [Column("id", int), Column("title", str), Column("n", int)])
OTHER = Table("other", [Column("id", int)])
FIRST = {"id": 1, "title": "one", "n": 1}
SECOND = {"id": 2, "title": "two", "n": 2}


class Script:
    """A store with two rows and the transactions of a test."""

    def __init__(self, tables: Sequence[Table] = (ISSUE, OTHER)) -> None:
        self._tables = tables
        self.transactions: list[list[Change]] = []

    def tables(self) -> Sequence[Table]:
        return self._tables

    def snapshot(self) -> Snapshot:
        rows: dict[str, list[Row]] = {"issue": [FIRST, SECOND], "other": [{"id": 9}]}
        return Snapshot(0, [RowsPartition(table.full_name, rows[table.full_name]) for table in self._tables])

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, int)
        for number, changes in enumerate(self.transactions[after:], start=after + 1):
            yield Transaction(number, changes)


@contextmanager
def log_of(script: Script, spill_bytes: int = 1 << 30) -> Iterator[CompactedLog]:
    with tempfile.TemporaryDirectory() as state:
        log = CompactedLog(Path(state), script, spill_bytes=spill_bytes)
        try:
            yield log
        finally:
            log.close()


def compacted(*transactions: list[Change]) -> dict[str, list[dict[str, object]]]:
    """The rows of a compacted snapshot, which a follower of the log holds as well."""
    script = Script()
    script.transactions = list(transactions)
    with log_of(script) as log:
        old = log.newest()
        log.follow()
        before = log.replica_from(old)
        assert log.compact() == log.reader.state().head
        after = log.replica_from(log.newest())
        assert before.contents() == after.contents()
        assert before.declared() == after.declared()
        assert before.indexes() == after.indexes()
        return after.contents()


def rows(issues: Sequence[Mapping[str, object]]) -> dict[str, list[dict[str, object]]]:
    return {"issue": [dict(row) for row in issues], "other": [{"id": 9}]}


def test_an_insert_replaces_and_a_delete_removes() -> None:
    new = {"id": 3, "title": None, "n": None}
    found = compacted([Insert("issue", {**FIRST, "n": 5}), Insert("issue", {"id": 3})], [Delete("issue", {"id": 2})])
    assert found == rows([{**FIRST, "n": 5}, new])


def test_an_update_keeps_the_columns_it_does_not_name() -> None:
    assert compacted([Update("issue", {"id": 1, "n": 7})]) == rows([{**FIRST, "n": 7}, SECOND])


def test_an_update_of_a_row_that_is_not_there_puts_it_there() -> None:
    found = compacted([Delete("issue", {"id": 1})], [Update("issue", {"id": 1, "n": 7})])
    assert found == rows([{"id": 1, "title": None, "n": 7}, SECOND])


def test_a_row_that_moves_leaves_its_old_key() -> None:
    whole, part = {"id": 11, "title": "one", "n": 1}, {"id": 12, "n": 3}
    found = compacted([Update("issue", whole, {"id": 1})], [Update("issue", part, {"id": 2})])
    assert found == rows([whole, {"id": 12, "title": "two", "n": 3}])


def test_rows_may_pass_through_many_keys_and_back() -> None:
    def moves(*keys: int) -> list[Change]:
        pairs = pairwise(keys)
        return [Update("issue", {"id": new}, {"id": old}) for old, new in pairs]

    found = compacted(moves(1, 5, 6), moves(2, 1), moves(6, 2, 8, 2))
    assert found == rows([{**SECOND, "id": 1}, {**FIRST, "id": 2}])


def test_a_truncated_table_holds_only_what_came_later() -> None:
    assert compacted([Truncate(["issue"]), Insert("issue", SECOND)]) == rows([SECOND])


def test_a_table_that_was_dropped_and_created_again_holds_only_new_rows() -> None:
    table = Table("issue", [Column("id", int), Column("v", str)])
    made: list[Change] = [Insert("issue", SECOND), DropTable("issue"), CreateTable(table)]
    assert compacted(made, [Insert("issue", {"id": 1, "v": "x"})]) == rows([{"id": 1, "v": "x"}])


def test_a_renamed_table_keeps_its_rows_and_its_name_may_be_used_again() -> None:
    found = compacted(
        [Update("issue", {**FIRST, "n": 5}), RenameTable("issue", "ticket")],
        [CreateTable(ISSUE), Insert("issue", {**FIRST, "n": 6}), Delete("ticket", {"id": 2})],
    )
    assert found == {"ticket": [{**FIRST, "n": 5}], "issue": [{**FIRST, "n": 6}], "other": [{"id": 9}]}


def test_columns_come_go_and_change_their_name() -> None:
    found = compacted(
        [AddColumn("issue", Column("state", str, default="open")), Insert("issue", {"id": 3, "state": None})],
        [AlterColumn("issue", "n", Column("number", int)), DropColumn("issue", "title")],
        [Update("issue", {"id": 2, "number": 9})],
    )
    expected: list[dict[str, object]] = [
        {"id": 1, "state": "open", "number": 1},
        {"id": 2, "state": "open", "number": 9},
        {"id": 3, "state": None, "number": None},
    ]
    assert found == rows(sorted(expected, key=lambda row: repr(sorted(row.items()))))


def test_values_are_converted_as_a_replica_converts_them() -> None:
    found = compacted([AlterColumn("issue", "n", Column("n", str)), Insert("issue", {"id": 3, "n": "x"})])
    assert [row["n"] for row in found["issue"]] == ["1", "2", "x"]


def test_a_key_that_changes_name_and_type_still_finds_its_row() -> None:
    found = compacted(
        [AlterColumn("issue", "id", Column("key", str, optional=False))],
        [Update("issue", {"key": "1", "n": 5}), Delete("issue", {"key": "2"})],
    )
    assert found == rows([{"key": "1", "title": "one", "n": 5}])


def test_a_transaction_larger_than_memory_is_folded_from_its_segment() -> None:
    script = Script()
    script.transactions = [[Insert("issue", {"id": number, "n": number}) for number in range(3, 300)]]
    with log_of(script, spill_bytes=1000) as log:
        log.follow()
        assert log.reader.read_after("00", 1 << 30)[0].frames is None
        log.compact()
        assert len(log.replica_from(log.newest()).contents()["issue"]) == 299


def test_tables_that_nothing_touched_share_the_files_of_the_old_snapshot() -> None:
    script = Script()
    script.transactions = [[Insert("issue", {"id": 3})]]
    with log_of(script) as log:
        log.follow()
        old = log.newest()
        (part,) = [p for p in snapshots.read_manifest(old.directory).parts if p.table == "other"]
        file = (old.directory / part.file).stat().st_ino
        log.compact()
        manifest = snapshots.read_manifest(log.newest().directory)
        (kept,) = [p for p in manifest.parts if p.table == "other"]
        assert (log.newest().directory / kept.file).stat().st_ino == file
        assert manifest.rows == 4


def test_compacting_again_starts_from_the_compacted_snapshot() -> None:
    script = Script()
    script.transactions = [[Insert("issue", {"id": 3})], [Delete("issue", {"id": 1})]]
    with log_of(script) as log:
        script.transactions, later = script.transactions[:1], script.transactions
        log.follow()
        first = log.compact()
        assert log.compact() is None
        script.transactions = later
        log.follow()
        second = log.compact()
        assert [record.watermark for record in log.reader.snapshots()][1:] == [first, second]
        assert [row["id"] for row in log.replica_from(log.newest()).contents()["issue"]] == [2, 3]


def test_what_leads_to_the_snapshot_is_not_needed_for_it_any_more() -> None:
    script = Script()
    script.transactions = [[Insert("issue", {"id": 3})], [Insert("issue", {"id": 4})]]
    with log_of(script) as log:
        log.follow()
        watermark = log.compact()
        assert watermark is not None
        assert log.writer.prune(watermark) == 2
        assert [row["id"] for row in log.replica_from(log.newest()).contents()["issue"]] == [1, 2, 3, 4]
        (spooled,) = [folder.name for folder in log.layout.spool.iterdir() if not folder.name.startswith(".")]
        assert spooled == watermark


def test_indexes_keep_the_names_that_consumers_know() -> None:
    table = Table("issue", ISSUE.columns, indexes=[Index("issue_n", ["n"])])
    script = Script((table,))
    script.transactions = [[RenameTable("issue", "ticket")], [CreateTable(Table("issue", ISSUE.columns))]]
    with log_of(script) as log:
        log.follow()
        log.compact()
        names = {name for name, _ in log.replica_from(log.newest()).indexes()}
        assert names == {"issue_pkey", "issue_n", "issue_pkey1"}


def test_tied_keys_have_one_key_that_stands_for_all() -> None:
    groups = groups_of([Tie(0, b"a", b"b"), Tie(0, b"c", b"d"), Tie(0, b"b", b"c"), Tie(1, b"a", b"x")])
    assert len({groups[0, key] for key in (b"a", b"b", b"c", b"d")}) == 1
    assert groups[1, b"a"] == groups[1, b"x"]


class Folded:
    """A world's history through the pure steps, in memory: what a replica holds before, and what the fold gives."""

    def __init__(self, seed: int, *, retypes: bool) -> None:
        self.world = World(Random(seed), retypes=retypes)
        self.world.live(transactions=8, changes=8)
        self._base = ConsumerSchema.of(TABLES)
        self._rows = [frames for table in TABLES for frames in self._initial(table)]
        self._log = self._encoded()
        self.folded = self._fold(Random(seed))

    def _initial(self, table: Table) -> list[bytes]:
        return [frames for _, frames in TableEncoder(table).inserts(self.world.initial[table.full_name])]

    def _encoded(self) -> list[bytes]:
        encoder = TransactionEncoder(self._base, Path)
        numbered = enumerate(self.world.transactions, start=1)
        data = [encoder.encode(Transaction(number, changes)).data for number, changes in numbered]
        return [frames for frames in data if isinstance(frames, bytes)]

    def _fold(self, random: Random) -> list[tuple[Table, bytes]]:
        changes = [
            ((f"{transaction:03}", number), payload)
            for transaction, frames in enumerate(self._log)
            for number, payload in enumerate(unframe(frames))
        ]
        cuts = sorted(random.choices(range(len(changes) + 1), k=3))
        shares = [changes[start:end] for start, end in pairwise([0, *cuts, len(changes)])]
        findings = [scan(share) for share in shares]
        history = history_of(self._base, findings, self.world.schema)
        ties = [tie for share in shares for tie in Sorting(history).ties(share)]
        assert has_partial_moves(history, findings) or not ties
        sorting = Sorting(history, groups_of(ties))
        items = [item for share in shares for item in sorting.changes(share)]
        items += [item for frames in self._rows for item in sorting.rows(unframe(frames))]
        random.shuffle(items)
        ordered = sorted(items, key=lambda item: item[0])
        found = ((history.numbered[number].table, row) for number, row in fold(history, ordered))
        return [(table, row) for table, row in found if table is not None]

    def replica_before(self) -> SqliteReplica:
        replica = SqliteReplica()
        before, after = snapshot_schema(TABLES)
        replica.take([*before, *self._rows, *after, *self._log])
        return replica

    def replica_after(self) -> SqliteReplica:
        replica = SqliteReplica()
        before, after = existing_schema(self.world.schema)
        rows = [frames for table, row in self.folded for _, frames in wire_inserts(table)([row])]
        replica.take([*before, *rows, *after])
        return replica


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_a_fold_gives_what_a_replica_in_sqlite_holds(seed: int) -> None:
    folded = Folded(seed, retypes=True)
    before, after = folded.replica_before(), folded.replica_after()
    assert after.contents() == before.contents()
    assert after.declared() == before.declared()
    assert after.indexes() == before.indexes()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_a_fold_gives_what_the_store_holds(seed: int) -> None:
    folded = Folded(seed, retypes=False)
    found: dict[str, list[str]] = {name: [] for name in folded.world.rows}
    for table, row in folded.folded:
        found[table.full_name].append(plain(json.loads(row)))
    held = {name: sorted(map(plain, rows.values())) for name, rows in folded.world.rows.items()}
    assert {name: sorted(rows) for name, rows in found.items()} == held


@pytest.mark.parametrize("seed", range(6))
def test_a_compacted_log_serves_what_it_served_before(seed: int, tmp_path: Path) -> None:
    world = World(Random(seed), retypes=True)
    world.live(transactions=12, changes=12)
    log = CompactedLog(tmp_path, WorldAdapter(world), spill_bytes=2000)
    old = log.newest()
    log.follow()
    before = log.replica_from(old)
    assert log.compact() == log.reader.state().head
    after = log.replica_from(log.newest())
    assert after.contents() == before.contents()
    assert after.declared() == before.declared()
    assert after.indexes() == before.indexes()
    log.close()


def plain(row: dict[str, object]) -> str:
    """A row for comparing; JSON columns travel as text."""
    texts = {name: json.dumps(value, separators=(",", ":")) for name, value in row.items() if isinstance(value, dict)}
    return repr(sorted({**row, **texts}.items()))


@pytest.mark.parametrize("rows_inserted", [0, 3])
def test_a_memory_store_is_compacted_without_being_asked(tmp_path: Path, rows_inserted: int) -> None:
    store = MemoryStore([ISSUE])
    log = CompactedLog(tmp_path, MemoryAdapter(store=store))
    for number in range(rows_inserted):
        store.commit([Insert("issue", {"id": number, "title": "t", "n": 0})])
    log.follow()
    watermark = log.compact()
    assert (watermark is None) == (rows_inserted == 0)
    assert len(log.replica_from(log.newest()).contents()["issue"]) == rows_inserted
    log.close()
