"""Snapshots that compaction offers: registered by the writer if they fit the log, in every store."""

from __future__ import annotations

import pytest

from changesource_sdk.changelog.log import SnapshotRecord
from changesource_sdk.changelog.reading import ranges
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.snapshots import Manifest
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.errors import StaleWriter
from protocol.framing import frame
from tests.changesource_sdk.changelog.log_fixtures import begin_generation, transaction
from tests.changesource_sdk.changelog.logs_under_test import LogUnderTest


def offered(log: LogUnderTest, writer: LogWriter, base: str | None = None) -> str:
    """A complete snapshot at the log's head, on offer."""
    state = writer.state()
    directory = snapshots.stage(log.store.layout.compaction, state.head)
    part = snapshots.write_frames(directory, 0, [frame(b"[]")])
    final = snapshots.complete(directory, Manifest(state.head, state.position, "{}", 2.0, (part,)))
    log.store.handoff.offer(base or writer.snapshots()[-1].watermark, final)
    return state.head


def newest(log: LogUnderTest) -> SnapshotRecord:
    return log.reader().snapshots()[-1]


def test_an_offer_becomes_the_newest_snapshot_of_the_same_generation(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    first = newest(log)
    writer.append([transaction(1), transaction(2)])
    watermark = offered(log, writer)
    assert log.store.handoff.is_pending()
    assert log.store.handoff.take(writer) == watermark
    assert not log.store.handoff.is_pending()
    assert [record.watermark for record in log.reader().snapshots()] == [first.watermark, watermark]
    assert (newest(log).generation, newest(log).position) == (first.generation, 2)
    assert snapshots.is_complete(newest(log).directory)
    assert not first.directory.exists()


def test_nothing_on_offer_changes_nothing(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    assert log.store.handoff.take(writer) is None
    assert len(log.reader().snapshots()) == 1


def test_the_log_goes_on_after_an_offer_and_a_restart(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    writer.append([transaction(1)])
    watermark = offered(log, writer)
    log.store.handoff.take(writer)
    again = log.writer()
    assert again.knows(1)
    (mark,) = again.append([transaction(2)])
    assert mark > watermark
    assert [record.watermark for record in again.snapshots()][-1] == watermark


def test_an_offer_made_for_a_former_generation_is_thrown_away(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    writer.append([transaction(1)])
    offered(log, writer)
    begin_generation(writer, log.state, above=writer.state().head)
    assert log.store.handoff.take(writer) is None
    assert len(log.reader().snapshots()) == 1
    assert not log.store.layout.compaction.exists()


def test_an_offer_survives_the_writer_it_was_made_beside(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    writer.append([transaction(1)])
    watermark = offered(log, writer)
    assert log.store.handoff.take(log.writer()) == watermark


def test_a_writer_that_was_replaced_cannot_take_an_offer(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    writer.append([transaction(1)])
    watermark = offered(log, writer)
    newer = log.writer()
    with pytest.raises(StaleWriter):
        log.store.handoff.take(writer)
    assert log.store.handoff.take(newer) == watermark


def test_an_older_snapshot_keeps_its_files_while_someone_reads_it(log: LogUnderTest) -> None:
    writer = log.writer()
    directory = snapshots.stage(log.store.layout.spool, watermark := writer.next_generation())
    part = snapshots.write_frames(directory, 0, [frame(b"[]")])
    first = snapshots.complete(directory, Manifest(watermark, 0, "{}", 1.0, (part,)))
    writer.start_generation(watermark, 0, "{}", first, 1.0)
    with snapshots.reading(first):
        writer.append([transaction(1)])
        offered(log, writer)
        log.store.handoff.take(writer)
        assert snapshots.is_complete(first)
    writer.append([transaction(2)])
    writer.prune(newest(log).watermark)
    assert not first.exists()


def test_ranges_cut_the_log_by_size_without_gap_or_overlap(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    start = writer.state().head
    marks = writer.append([transaction(n, "x" * 100) for n in range(1, 8)])
    reader = log.reader()
    size = reader.read_after(start, 0)[0].size
    cut = ranges(reader, start, marks[-2], 2 * size)
    assert [(each.after, each.through) for each in cut] == [
        (start, marks[1]),
        (marks[1], marks[3]),
        (marks[3], marks[5]),
    ]
    assert {(each.transactions, each.bytes) for each in cut} == {(2, 2 * size)}
    assert ranges(reader, marks[-1], marks[-1], 1) == []


def test_pruning_in_steps_forgets_the_oldest_first(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    marks = writer.append([transaction(n) for n in range(1, 6)])
    assert writer.prune(marks[3], at_most=3) == 3
    assert log.reader().state().oldest == marks[2]
    assert writer.prune(marks[3], at_most=3) == 1
    assert (log.reader().state().oldest, writer.state().transactions) == (marks[3], 1)
    assert writer.prune(marks[3], at_most=3) == 0
