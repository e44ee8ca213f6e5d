"""The log as its readers and its writer use it, in every store."""

import pytest

from changesource_sdk.changelog.reading import has, knows
from changesource_sdk.changelog.spool.blocks import BlockWriter
from changesource_sdk.errors import InvalidChange, SnapshotGone, StaleWriter
from protocol import watermark as watermarks
from protocol.framing import frame
from protocol.watermark import EMPTY
from tests.changesource_sdk.changelog.log_fixtures import START_US, begin_generation, payloads, spilled, transaction
from tests.changesource_sdk.changelog.logs_under_test import LogUnderTest


def test_a_log_that_does_not_exist_reads_as_empty(log: LogUnderTest) -> None:
    reader = log.reader()
    assert reader.state().generation == 0
    assert reader.state().head == reader.state().oldest == EMPTY
    assert reader.read_after(EMPTY, 1000) == []
    assert reader.snapshots() == []
    assert not knows(reader, 1)


def test_a_new_log_starts_at_the_clock_and_counts_from_there(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    marks = writer.append([transaction(1), transaction(2)])
    start = watermarks.from_int(START_US)
    assert writer.snapshots()[0].watermark == start
    assert marks == [watermarks.from_int(START_US + 1), watermarks.from_int(START_US + 2)]


def test_a_reader_opened_before_the_writer_sees_what_is_appended(log: LogUnderTest) -> None:
    reader = log.reader()
    assert reader.state().head == EMPTY
    writer = log.writer_with_generation()
    (mark,) = writer.append([transaction(1, "hello")])
    assert reader.state().head == mark
    assert payloads(reader) == [
        b'["begin",{"tag":"begin","json":"s"},{"commitWatermark":"%s"}]' % mark.encode(),
        b'["data","hello"]',
        b'["commit",{"tag":"commit","commitTimeMs":12.5},{"watermark":"%s"}]' % mark.encode(),
    ]


def test_the_reader_s_state_is_the_writer_s(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    writer.append([transaction(1), transaction(2, schema='{"s":1}'), transaction(3)])
    state = log.reader().state()
    assert state == writer.state()
    assert (state.transactions, state.position, state.schema) == (3, 3, '{"s":1}')


def test_reading_gives_whole_transactions_up_to_the_size_and_at_least_one(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    marks = writer.append([transaction(n, "x" * 100) for n in range(1, 6)])
    reader = log.reader()
    size = reader.read_after(EMPTY, 0)[0].size
    assert [s.watermark for s in reader.read_after(EMPTY, 0)] == marks[:1]
    assert [s.watermark for s in reader.read_after(EMPTY, 2 * size)] == marks[:2]
    assert [s.watermark for s in reader.read_after(marks[2], 1 << 20)] == marks[3:]
    assert all(s.frames is not None and s.size == len(s.frames) for s in reader.read_after(EMPTY, 1 << 20))


@pytest.mark.parametrize("position", [7, "0/16B3748", {"b": [1, 2], "a": None}, [3, "x"]])
def test_a_transaction_given_twice_is_stored_once(log: LogUnderTest, position: object) -> None:
    writer = log.writer_with_generation()
    first = writer.append([transaction(position)])  # type: ignore[arg-type]
    again = writer.append([transaction(position), transaction(position)])  # type: ignore[arg-type]
    assert again == first * 2
    assert writer.state().transactions == 1


def test_a_transaction_given_twice_in_one_batch_is_stored_once(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    first, second, third = writer.append([transaction("a"), transaction("a"), transaction("b")])
    assert first == second < third
    assert writer.state().transactions == 2


def test_idempotence_survives_a_restart_and_pruning(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    marks = writer.append([transaction(n) for n in (1, 2, 3)])
    writer.prune(marks[-1])
    writer.close()
    again = log.writer()
    again.append([transaction(2), transaction(3)])
    assert again.state().head == marks[-1]
    assert again.state().transactions == 0
    assert again.knows(3)
    assert not again.knows(4)


def test_what_the_snapshot_holds_is_not_appended_again(log: LogUnderTest) -> None:
    writer = log.writer_with_generation(position={"lsn": 5})
    writer.append([transaction({"lsn": 5})])
    assert writer.state().transactions == 0


def test_an_adapter_s_own_watermarks_are_kept_and_must_increase(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    own = watermarks.from_int(START_US + 1000, 3)
    assert writer.append([transaction(1, watermark=own)]) == [own]
    with pytest.raises(InvalidChange) as refused:
        writer.append([transaction(2), transaction(3, watermark=own)])
    assert refused.value.code == "watermark-not-increasing"
    assert writer.state().transactions == 1
    assert writer.append([transaction(2)]) == [watermarks.from_int(START_US + 1001)]


def test_own_watermarks_must_differ_in_their_major_number(log: LogUnderTest) -> None:
    """What lies between two of them is issued to initial syncs."""
    writer = log.writer_with_generation()
    own = watermarks.from_int(START_US + 1000, 3)
    writer.append([transaction(1, watermark=own)])
    with pytest.raises(InvalidChange, match="watermark-not-increasing"):
        writer.append([transaction(2, watermark=watermarks.from_int(START_US + 1000, 4))])


def test_a_log_that_is_opened_again_numbers_from_the_clock(log: LogUnderTest) -> None:
    """If it was restored from an older copy, its numbers were used already, for other transactions."""
    log.writer_with_generation().append([transaction(1)])
    later = log.writer(now_us=START_US + 10**6)
    assert later.append([transaction(2)]) == [watermarks.from_int(START_US + 10**6 + 1)]


def test_the_log_knows_its_watermarks_and_counts_what_follows_them(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    reader = log.reader()
    assert reader.count_after("00") == 0
    marks = writer.append([transaction(n) for n in (1, 2, 3, 4)])
    assert [has(reader, mark) for mark in (marks[0], marks[3], "00", f"{marks[0]}.05")] == [True, True, False, False]
    counts = [reader.count_after(mark) for mark in ("00", marks[0], f"{marks[1]}.05", marks[3])]
    assert counts == [4, 3, 2, 0]
    writer.prune(marks[1])
    assert reader.count_after("00") == 2


def test_an_older_writer_is_fenced_off_and_changes_nothing(log: LogUnderTest) -> None:
    old = log.writer_with_generation()
    old.append([transaction(1)])
    new = log.writer()
    with pytest.raises(StaleWriter) as refused:
        old.append([transaction(2)])
    assert "took over" in refused.value.message
    with pytest.raises(StaleWriter):
        old.prune(old.state().head)
    assert new.append([transaction(2)])[0] == new.state().head
    assert new.state().transactions == 2


def test_a_new_generation_drops_the_former_and_goes_up(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    marks = writer.append([transaction(1)])
    old_folder = writer.snapshots()[0].directory
    watermark = begin_generation(writer, log.state, position=9)
    state = log.reader().state()
    assert watermark > marks[-1]
    assert (state.generation, state.head, state.oldest, state.transactions) == (2, watermark, watermark, 0)
    assert [s.watermark for s in writer.snapshots()] == [watermark]
    assert not old_folder.exists()


def test_a_generation_starts_above_what_a_consumer_has_seen(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    seen = watermarks.from_int(START_US * 2)
    assert writer.next_generation(seen) == watermarks.from_int(START_US * 2 + 1)
    assert writer.next_generation(proposed=seen) == seen
    assert writer.next_generation(above=seen, proposed="01") > seen


def test_a_generation_cannot_start_behind_the_head(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    with pytest.raises(InvalidChange, match="snapshot-not-ahead"):
        writer.start_generation("01", 0, "{}", log.state / "spool" / "01", 1.0)


def test_a_lost_log_comes_back_higher_than_its_spool(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    lost = writer.state().head
    writer.close()
    log.lose()
    again = log.writer(now_us=5)
    assert again.state().generation == 0
    assert again.next_generation() > lost


def test_pruning_forgets_up_to_the_watermark_and_no_further_than_the_head(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    marks = writer.append([transaction(n) for n in range(1, 6)])
    reader = log.reader()
    assert writer.prune(marks[1]) == 2
    assert writer.prune(marks[0]) == 0
    assert reader.state().oldest == marks[1]
    assert [s.watermark for s in reader.read_after(EMPTY, 1 << 20)] == marks[2:]
    assert writer.prune("z" * 37) == 3
    assert reader.state().oldest == reader.state().head == marks[-1]
    assert writer.append([transaction(6)])[0] > marks[-1]


def test_a_large_transaction_is_read_block_by_block_and_forgotten_whole(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    with BlockWriter(log.state / "segments" / "1-1.frames", block_size=64) as blocks:
        for number in range(20):
            blocks.write(frame(b'["data",%d]' % number))
        file = blocks.finish()
    marks = writer.append([spilled("big", file, 20), transaction("small")])
    reader = log.reader()
    (big,) = reader.read_after(EMPTY, 1)
    chunks = list(big.chunks())
    assert big.frames is None
    assert sum(map(len, chunks)) == big.size
    assert len(chunks) > 4
    assert payloads(reader)[1:21] == [b'["data",%d]' % number for number in range(20)]
    writer.prune(marks[0])
    assert list((log.state / "segments").iterdir()) == []
    with pytest.raises(SnapshotGone):
        list(big.chunks())


def test_pruning_leaves_segments_that_are_still_being_written(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    marks = writer.append([transaction(1)])
    staged = BlockWriter(log.state / "segments" / "1-2.frames")
    writer.prune(marks[0])
    staged.write(frame(b"[]"))
    writer.append([spilled(2, staged.finish(), 1)])
    assert payloads(log.reader())[1] == b"[]"


def test_opening_a_writer_sweeps_what_a_kill_left_behind(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    kept = writer.snapshots()[0].directory
    (log.state / "segments" / "orphan.frames").touch()
    (log.state / "spool" / "0a.partial").mkdir()
    writer.close()
    log.writer()
    assert list((log.state / "segments").iterdir()) == []
    assert list((log.state / "spool").iterdir()) == [kept]
