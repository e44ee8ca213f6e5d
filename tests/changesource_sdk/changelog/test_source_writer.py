"""Writers of several sources in one log: one order, two epochs, names that stay apart; in each kind of store."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest

from changesource_sdk.changelog.log import EncodedTransaction, SourceRead, SourceRow
from changesource_sdk.changelog.postgres.store import PostgresLogStore
from changesource_sdk.changelog.source_writer import SourceWriter, merged_schemas
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.snapshots import Manifest
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.errors import InvalidChange, StaleWriter
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.schema import Column, Table
from tests.changesource_sdk.changelog.log_fixtures import START_US
from tests.changesource_sdk.changelog.logs_under_test import LogUnderTest


def transaction(position: int, schema: str | None = None, watermark: str | None = None) -> EncodedTransaction:
    return EncodedTransaction(position, 1.0, watermark, b"", 1, schema)


def schema_of(*tables: str) -> str:
    return ConsumerSchema.of([Table(name, [Column("id", int)]) for name in tables]).to_json()


class Shared:
    """A log with an empty shared generation, its owner, and writers that are closed at the end."""

    def __init__(self, log: LogUnderTest, stack: ExitStack) -> None:
        self.log = log
        self._stack = stack
        self.owner: LogWriter = log.writer()
        watermark = self.owner.next_generation()
        directory = snapshots.stage(log.store.layout.spool, watermark)
        part = snapshots.write_frames(directory, 0, ())
        final = snapshots.complete(directory, Manifest(watermark, None, "", 0.0, (part,)))
        self.owner.start_shared_generation(final, 0.0, [], "")

    def writer(self, source: str) -> SourceWriter:
        epoch = self.owner.state().epoch
        made = self.log.store.open_source_writer(source, epoch, lambda: START_US)
        self._stack.callback(made.close)
        return made


@pytest.fixture
def shared(log: LogUnderTest) -> Iterator[Shared]:
    with ExitStack() as stack:
        yield Shared(log, stack)


def test_writers_in_threads_make_one_order(shared: Shared) -> None:
    writers = [shared.writer(name) for name in ("a", "b", "c")]
    marks: dict[str, list[str]] = {}

    def append(writer: SourceWriter) -> None:
        marks[writer.row.name] = [writer.append([transaction(number)])[0] for number in range(1, 21)]

    # Connections of SQLite belong to the thread that opened them, so each thread works with its own.
    def run(name: str) -> None:
        with closing(shared.log.store.open_source_writer(name, shared.owner.state().epoch, lambda: START_US)) as own:
            append(own)

    for writer in writers:
        writer.close()
    threads = [threading.Thread(target=run, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    everything = sorted(mark for each in marks.values() for mark in each)
    assert [stored.watermark for stored in shared.log.reader().read_after("00", 1 << 20)] == everything
    assert len(set(everything)) == 60
    assert all(each == sorted(each) for each in marks.values())


def test_positions_of_sources_do_not_collide_and_a_replay_is_skipped(shared: Shared) -> None:
    one, other = shared.writer("a"), shared.writer("b")
    first = one.append([transaction(1), transaction(2)])
    assert other.append([transaction(1)])[0] not in first
    again = shared.writer("a")
    assert again.append([transaction(1), transaction(2), transaction(3)])[:2] == first
    assert again.state().position == 3
    assert shared.log.reader().count_after("00") == 4


def test_a_watermark_of_an_adapter_is_not_used(shared: Shared) -> None:
    (mark,) = shared.writer("a").append([transaction(1, watermark="05")])
    assert mark > shared.owner.state().head


def test_a_newer_writer_of_a_source_fences_the_older_and_no_other(shared: Shared) -> None:
    older, other = shared.writer("a"), shared.writer("b")
    newer = shared.writer("a")
    with pytest.raises(StaleWriter):
        older.append([transaction(1)])
    other.append([transaction(1)])
    newer.append([transaction(1)])


def test_a_newer_pipeline_fences_all_sources(shared: Shared) -> None:
    one = shared.writer("a")
    newer = shared.log.writer()
    with pytest.raises(StaleWriter):
        one.append([transaction(1)])
    with pytest.raises(StaleWriter):
        shared.writer("a")
    assert newer.state().head == shared.owner.state().head


def test_a_table_that_another_source_has_is_refused_and_nothing_is_written(shared: Shared) -> None:
    one, other = shared.writer("a"), shared.writer("b")
    one.append([transaction(1, schema_of("user"))])
    with pytest.raises(InvalidChange, match="USER is in the source a and in the source b"):
        other.append([transaction(1, schema_of("USER"))])
    assert shared.log.reader().count_after("00") == 1
    other.append([transaction(1, schema_of("event"))])
    assert set(ConsumerSchema.from_json(shared.log.reader().state().schema).tables) == {"user", "event"}


def test_positions_of_a_former_read_do_not_count(shared: Shared) -> None:
    writer = shared.writer("a")
    writer.append([transaction(7)])
    writer.clear_position()
    assert writer.row.position is None
    row = writer.row._replace(position="3", reads=writer.row.reads + 1)
    writer.append_read(SourceRead(row, transaction(3)))
    before = shared.log.reader().count_after("00")
    writer.append([transaction(7)])
    assert shared.log.reader().count_after("00") == before + 1


def test_the_owner_prunes_what_sources_appended(shared: Shared) -> None:
    writer = shared.writer("a")
    marks = writer.append([transaction(number) for number in range(1, 5)])
    assert shared.owner.prune(marks[1]) == 2
    writer.append([transaction(5)])
    state = shared.log.reader().state()
    assert (state.oldest, state.transactions) == (marks[1], 3)
    assert writer.append([transaction(2)]) == [marks[1]], "what was pruned is not a new transaction"


def test_schemas_of_sources_are_merged_unless_a_name_is_in_two() -> None:
    rows = [SourceRow("a", schema=schema_of("user")), SourceRow("b", schema=schema_of("event"))]
    assert set(ConsumerSchema.from_json(merged_schemas(rows)).tables) == {"user", "event"}
    with pytest.raises(InvalidChange, match="name-in-two-sources"):
        merged_schemas([*rows, SourceRow("c", schema=schema_of("Event"))])


def test_a_log_of_an_earlier_release_has_no_sources(log: LogUnderTest) -> None:
    log.writer_with_generation().close()
    if isinstance(log.store, PostgresLogStore):
        with psycopg.connect(log.store.address.url, autocommit=True) as connection:
            connection.execute(f'DROP TABLE "{log.store.address.schema}".sources'.encode())
    else:
        with closing(sqlite3.connect(log.store.layout.log)) as file, file:
            file.execute("DROP TABLE sources")
    assert log.reader().state().sources == {}
    assert log.reader().state().generation == 1
    assert log.writer().sources() == {}
