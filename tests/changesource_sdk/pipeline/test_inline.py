"""The inline runner: snapshot, tail, recovery, requests."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import (
    Change,
    Column,
    CreateTable,
    Index,
    Insert,
    Position,
    RowsPartition,
    Snapshot,
    Table,
    Transaction,
)
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.errors import StaleWriter
from changesource_sdk.pipeline.inline import InlineRunner
from service_kit.backoff import Backoff
from tests.changesource_sdk.pipeline.runner_fixtures import PATIENCE_S, Watched, running

ISSUE = Table("issue", [Column("id", int), Column("title", str)])


def a_store(rows: int = 3) -> MemoryStore:
    store = MemoryStore([ISSUE])
    store.commit(Insert("issue", {"id": number, "title": "t"}) for number in range(rows))
    return store


class Scripted(MemoryAdapter):
    """An adapter whose transactions are given, whatever position it is asked for."""

    poll_interval = 0.01

    def __init__(self, *transactions: Transaction) -> None:
        super().__init__(store=a_store(0))
        self.transactions = transactions
        self.asked: list[Position] = []
        self.acknowledged: list[Position] = []

    def snapshot(self) -> Snapshot:
        return Snapshot("start", [RowsPartition("issue", [])])

    def changes(self, after: Position) -> Iterator[Transaction]:
        self.asked.append(after)
        yield from self.transactions

    def acknowledge(self, position: Position) -> None:
        self.acknowledged.append(position)


def insert(number: int) -> Insert:
    return Insert("issue", {"id": number, "title": "x"})


def test_the_store_s_rows_become_a_snapshot_and_its_commits_the_log(tmp_path: Path) -> None:
    store = a_store(3)
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_generation(1)
        assert sum(b'"insert"' in payload for payload in seen.snapshot_payloads()) == 3
        store.commit([insert(10), insert(11)])
        seen.until_position(2)
        assert sum(b'"insert"' in payload for payload in seen.log_payloads()) == 2
        seen.until(lambda: seen.stage().get("state") == "tailing")
    assert (seen.stage()["state"], seen.stage()["rows"], seen.stage()["transactions"]) == ("stopped", 3, 1)


def test_a_restart_goes_on_after_the_last_position_without_a_snapshot(tmp_path: Path) -> None:
    store = a_store()
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_generation(1)
        store.commit([insert(10)])
        seen.until_position(2)
    store.commit([insert(11)])
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_position(3)
        assert seen.log.state().generation == 1
        assert seen.log.state().transactions == 2


@pytest.mark.parametrize("positions", [(1, 2, 1, 3, 2), ("a", "b", "a", "c", "b"), ({"x": 1}, {"x": 2}, {"x": 1})])
def test_replayed_transactions_are_stored_once(tmp_path: Path, positions: Sequence[Position]) -> None:
    adapter = Scripted(*(Transaction(position, iter([insert(1)])) for position in positions))
    with running(lambda: adapter, tmp_path) as seen:
        last = max(positions, key=str)
        seen.until_position(last)
        seen.until(lambda: len(adapter.asked) > 2)
        assert seen.log.state().transactions == len({str(position) for position in positions})
    assert adapter.asked[0] == "start"
    assert adapter.acknowledged[-1] == last


def test_a_replayed_schema_change_is_not_validated_twice(tmp_path: Path) -> None:
    create = CreateTable(Table("x", [Column("id", int)]))
    adapter = Scripted(Transaction("a", [create]), Transaction("a", [create]), Transaction("b", [insert(1)]))
    with running(lambda: adapter, tmp_path) as seen:
        seen.until_position("b")
        assert seen.error_code() is None


def test_acknowledgement_comes_after_the_log_has_it(tmp_path: Path) -> None:
    seen_at_ack: list[Position] = []

    class Checking(Scripted):
        def acknowledge(self, position: Position) -> None:
            super().acknowledge(position)
            seen_at_ack.append(log.state().position)

    log = SqliteLogStore(tmp_path).open_log()
    adapter = Checking(*(Transaction(n, [insert(n)]) for n in range(1, 50)))
    with running(lambda: adapter, tmp_path) as seen:
        seen.until_position(49)
        seen.until(lambda: 49 in adapter.acknowledged)
    log.close()
    assert seen_at_ack == adapter.acknowledged


def test_an_adapter_that_fails_is_reported_and_tried_again(tmp_path: Path) -> None:
    class Failing(Scripted):
        def changes(self, after: Position) -> Iterator[Transaction]:
            yield Transaction(1, [insert(1)])
            if not mended.is_set():
                raise ConnectionError("no route to store")
            yield Transaction(2, [insert(2)])

    mended = threading.Event()
    with running(Failing, tmp_path) as seen:
        seen.until(lambda: seen.error_code() == "adapter-failed")
        assert seen.log.state().position == 1
        error = seen.stage()["error"]
        assert isinstance(error, dict)
        assert error["message"] == "ConnectionError: no route to store"
        assert error["where"].startswith("changes(), test_inline.py line ")
        mended.set()
        seen.until_position(2)
        seen.until(lambda: seen.error_code() is None)
        assert seen.log.state().generation == 1


def test_a_change_no_consumer_could_apply_never_reaches_the_log(tmp_path: Path) -> None:
    good, bad = Transaction(1, [insert(1)]), Transaction(2, [insert(2), Insert("issue", {"id": "x"})])
    with running(lambda: Scripted(good, bad), tmp_path) as seen:
        seen.until(lambda: seen.error_code() == "value-does-not-fit")
        assert seen.log.state().position == 1
        assert seen.log.state().transactions == 1


def test_a_failing_snapshot_is_tried_again_and_leaves_nothing(tmp_path: Path) -> None:
    closed: list[int] = []

    class Failing(Scripted):
        def snapshot(self) -> Snapshot:
            rows: list[dict[str, object]] = [{"id": 1}] if mended.is_set() else [{"id": 1}, {"id": None}]
            return Snapshot("start", [RowsPartition("issue", rows)], close=lambda: closed.append(1))

    mended = threading.Event()
    with running(Failing, tmp_path) as seen:
        seen.until(lambda: seen.error_code() == "value-does-not-fit")
        assert seen.log.state().generation == 0
        mended.set()
        seen.until_generation(1)
    assert len(list((tmp_path / "spool").iterdir())) == 1
    assert len(closed) >= 2


@pytest.mark.parametrize("above", ["f" + "a" * 16, "z" + "z" * 36])
def test_a_request_above_what_was_ever_sent_moves_no_watermark(tmp_path: Path, above: str) -> None:
    """An earlier release wrote it on a consumer's word, and could then take no snapshot at all."""
    store = a_store()
    requests = SqliteLogStore(tmp_path).requests
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_generation(1)
        requests.ask_snapshot(above, "a consumer saw more")
        seen.until_generation(2)
        assert seen.log.state().head < above
        seen.until(lambda: requests.pending_snapshot() is None)


def test_a_request_brings_a_new_generation_above_it(tmp_path: Path) -> None:
    store = a_store()
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_generation(1)
        store.commit([insert(10)])
        seen.until_position(2)
        first = seen.log.state().head
        SqliteLogStore(tmp_path).requests.ask_snapshot(first, "stored frames are damaged")
        seen.until_generation(2)
        assert seen.log.state().head > first
        seen.until(lambda: SqliteLogStore(tmp_path).requests.pending_snapshot() is None)
        store.commit([insert(11)])
        seen.until_position(3)
        assert seen.log.state().generation == 2


def test_a_request_that_is_already_met_is_withdrawn(tmp_path: Path) -> None:
    SqliteLogStore(tmp_path).requests.ask_snapshot("01", "early")
    with running(lambda: MemoryAdapter(store=a_store()), tmp_path) as seen:
        seen.until_generation(1)
        seen.until(lambda: SqliteLogStore(tmp_path).requests.pending_snapshot() is None)
        SqliteLogStore(tmp_path).requests.ask_snapshot("02", "met")
        seen.until(lambda: SqliteLogStore(tmp_path).requests.pending_snapshot() is None)
        assert seen.log.state().generation == 1


def test_a_prune_request_is_carried_out(tmp_path: Path) -> None:
    store = a_store()
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_generation(1)
        store.commit([insert(10)])
        seen.until_position(2)
        head = seen.log.state().head
        SqliteLogStore(tmp_path).requests.ask_prune(head)
        seen.until(lambda: seen.log.state().oldest == head)
        assert seen.log.state().transactions == 0


def test_a_system_table_in_the_stream_brings_a_new_generation(tmp_path: Path) -> None:
    clients = Table("zero_0.clients", [Column("id", str)])

    class Growing(Scripted):
        def snapshot(self) -> Snapshot:
            snapshots.append(1)
            if len(snapshots) == 1:
                return Snapshot("start", [])
            return Snapshot("created", [], tables=[ISSUE, clients])

        def changes(self, after: Position) -> Iterator[Transaction]:
            if after == "start":
                yield Transaction("created", [CreateTable(clients)])
            elif after == "created":
                yield Transaction("used", [Insert("zero_0.clients", {"id": "c"})])

    snapshots: list[int] = []
    with running(Growing, tmp_path) as seen:
        seen.until_position("used")
        assert seen.log.state().generation == 2


def test_a_transaction_larger_than_memory_passes_through_a_segment(tmp_path: Path) -> None:
    def many() -> Iterator[Change]:
        for number in range(5000):
            yield insert(number)

    adapter = Scripted(Transaction(1, many()), Transaction(2, [insert(1)]))
    with running(lambda: adapter, tmp_path, spill_bytes=10_000) as seen:
        seen.until_position(2)
        (segment,) = (tmp_path / "segments").iterdir()
        assert segment.stat().st_size > 100_000
        payloads = seen.log_payloads()
    assert sum(b'"insert"' in payload for payload in payloads) == 5001


def test_a_damaged_log_is_set_aside_and_the_store_read_anew(tmp_path: Path) -> None:
    store = a_store()
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_generation(1)
        first = seen.log.state().head
    for file in tmp_path.glob("log.sqlite*"):
        file.write_bytes(file.read_bytes()[:3000])
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_generation(1)
        assert seen.log.state().head > first
    assert (tmp_path / "log.sqlite.corrupt-1").exists()


def test_a_log_damaged_while_running_is_set_aside_once_a_reader_complains(tmp_path: Path) -> None:
    store = a_store()
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_generation(1)
        first = seen.log.state().head
        for name in ("log.sqlite", "log.sqlite-wal"):
            with (tmp_path / name).open("r+b") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(0)
                file.write(b"garbage!" * (size // 8))
        SqliteLogStore(tmp_path).requests.ask_snapshot(first, "log-corrupt")
        seen.until((tmp_path / "log.sqlite.corrupt-1").exists, "a log set aside")
        seen.until(lambda: SqliteLogStore(tmp_path).requests.pending_snapshot() is None)
        store.commit([insert(10)])
        seen.until_position(2)
        assert seen.log.state().head > first


def test_a_stop_in_the_middle_of_a_snapshot_is_heard(tmp_path: Path) -> None:
    reading = threading.Event()

    class Endless:
        table = "issue"

        def rows(self) -> Iterator[dict[str, object]]:
            for number in itertools.count():
                reading.set()
                yield {"id": number, "title": None}

    class Slow(Scripted):
        def snapshot(self) -> Snapshot:
            return Snapshot("start", [Endless()])

    with running(Slow, tmp_path) as seen:
        assert reading.wait(PATIENCE_S)
    assert seen.stage()["state"] == "stopped"
    assert seen.stage()["error"] is None


def test_indexes_that_are_not_unique_come_after_the_rows(tmp_path: Path) -> None:
    store = MemoryStore([replace(ISSUE, indexes=(Index("issue_title", ["title"]),))])
    store.commit([insert(1)])
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_generation(1)
        tags = [payload.split(b'"')[5] for payload in seen.snapshot_payloads()]
    assert tags == [b"create-table", b"create-index", b"insert", b"create-index"]


@pytest.mark.parametrize("damage", ["remove", "cut"])
def test_a_damaged_spool_is_replaced_by_a_new_snapshot(tmp_path: Path, damage: str) -> None:
    store = a_store()
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_generation(1)
        directory = seen.log.snapshots()[0].directory
    if damage == "remove":
        shutil.rmtree(directory)
    else:
        (directory / "part-00001.frames").write_bytes(b"")
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_generation(2)
        assert sum(b'"insert"' in payload for payload in seen.snapshot_payloads()) == 3


def test_a_close_that_fails_does_not_stop_the_runner(tmp_path: Path) -> None:
    class Clumsy(Scripted):
        def close(self) -> None:
            raise OSError("already closed")

    with running(lambda: Clumsy(Transaction(1, [insert(1)])), tmp_path) as seen:
        seen.until_position(1)
        SqliteLogStore(tmp_path).requests.ask_snapshot(seen.log.state().head, "again")
        seen.until_generation(2)


def test_a_runner_that_was_replaced_stops_with_a_clear_error(tmp_path: Path) -> None:
    store = a_store()
    runner = InlineRunner(lambda: MemoryAdapter(store=store), SqliteLogStore(tmp_path), backoff=Backoff(0.01, 0.01))
    raised: list[BaseException] = []

    def run() -> None:
        try:
            runner.run()
        except StaleWriter as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    seen = Watched(tmp_path)
    seen.until_generation(1)
    newer = SqliteLogStore(tmp_path).open_writer(lambda: 1)
    store.commit([insert(10)])
    thread.join(PATIENCE_S)
    assert [type(error) for error in raised] == [StaleWriter]
    assert newer.state().transactions == 0
    seen.close()


def test_backoff_doubles_up_to_its_limit() -> None:
    backoff = Backoff(0.1, 1.0)
    assert [backoff.delay(failures) for failures in (1, 2, 3, 4, 5, 50)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
