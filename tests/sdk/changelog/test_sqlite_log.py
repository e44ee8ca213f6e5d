"""The SQLite log as its readers and its writer use it."""

from pathlib import Path

import pytest

from changesource_sdk.changelog.blocks import BlockWriter
from changesource_sdk.changelog.log import EMPTY
from changesource_sdk.changelog.sqlite_log import SqliteLogReader
from changesource_sdk.errors import InvalidChange, SnapshotGone, StaleWriter
from protocol import watermark as watermarks
from protocol.framing import frame
from tests.sdk.changelog.log_fixtures import (
    START_US,
    begin_generation,
    payloads,
    spilled,
    transaction,
    writer_of,
    writer_with_generation,
)


def test_a_log_that_does_not_exist_reads_as_empty(tmp_path: Path) -> None:
    reader = SqliteLogReader(tmp_path)
    assert reader.state().generation == 0
    assert reader.head() == reader.oldest() == EMPTY
    assert reader.read_after(EMPTY, 1000) == []
    assert reader.snapshots() == []
    assert not reader.knows(1)


def test_a_new_log_starts_at_the_clock_and_counts_from_there(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    marks = writer.append([transaction(1), transaction(2)])
    start = watermarks.from_int(START_US)
    assert writer.snapshots()[0].watermark == start
    assert marks == [watermarks.from_int(START_US + 1), watermarks.from_int(START_US + 2)]


def test_a_reader_opened_before_the_writer_sees_what_is_appended(tmp_path: Path) -> None:
    reader = SqliteLogReader(tmp_path)
    assert reader.head() == EMPTY
    writer = writer_with_generation(tmp_path)
    (mark,) = writer.append([transaction(1, "hello")])
    assert reader.head() == mark
    assert payloads(reader) == [
        b'["begin",{"tag":"begin","json":"s"},{"commitWatermark":"%s"}]' % mark.encode(),
        b'["data","hello"]',
        b'["commit",{"tag":"commit","commitTimeMs":12.5},{"watermark":"%s"}]' % mark.encode(),
    ]


def test_the_reader_s_state_is_the_writer_s(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    writer.append([transaction(1), transaction(2, schema='{"s":1}'), transaction(3)])
    state = SqliteLogReader(tmp_path).state()
    assert state == writer.state()
    assert (state.transactions, state.position, state.schema) == (3, 3, '{"s":1}')


def test_reading_gives_whole_transactions_up_to_the_size_and_at_least_one(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    marks = writer.append([transaction(n, "x" * 100) for n in range(1, 6)])
    reader = SqliteLogReader(tmp_path)
    size = reader.read_after(EMPTY, 0)[0].size
    assert [s.watermark for s in reader.read_after(EMPTY, 0)] == marks[:1]
    assert [s.watermark for s in reader.read_after(EMPTY, 2 * size)] == marks[:2]
    assert [s.watermark for s in reader.read_after(marks[2], 1 << 20)] == marks[3:]
    assert all(s.frames is not None and s.size == len(s.frames) for s in reader.read_after(EMPTY, 1 << 20))


@pytest.mark.parametrize("position", [7, "0/16B3748", {"b": [1, 2], "a": None}, [3, "x"]])
def test_a_transaction_given_twice_is_stored_once(tmp_path: Path, position: object) -> None:
    writer = writer_with_generation(tmp_path)
    first = writer.append([transaction(position)])  # type: ignore[arg-type]
    again = writer.append([transaction(position), transaction(position)])  # type: ignore[arg-type]
    assert again == first * 2
    assert writer.state().transactions == 1


def test_a_transaction_given_twice_in_one_batch_is_stored_once(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    first, second, third = writer.append([transaction("a"), transaction("a"), transaction("b")])
    assert first == second < third
    assert writer.state().transactions == 2


def test_idempotence_survives_a_restart_and_pruning(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    marks = writer.append([transaction(n) for n in (1, 2, 3)])
    writer.prune(marks[-1])
    writer.close()
    again = writer_of(tmp_path)
    again.append([transaction(2), transaction(3)])
    assert again.state().head == marks[-1]
    assert again.state().transactions == 0
    assert again.knows(3)
    assert not again.knows(4)


def test_what_the_snapshot_holds_is_not_appended_again(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path, position={"lsn": 5})
    writer.append([transaction({"lsn": 5})])
    assert writer.state().transactions == 0


def test_an_adapter_s_own_watermarks_are_kept_and_must_increase(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    own = watermarks.from_int(START_US + 1000, 3)
    assert writer.append([transaction(1, watermark=own)]) == [own]
    with pytest.raises(InvalidChange) as refused:
        writer.append([transaction(2), transaction(3, watermark=own)])
    assert refused.value.code == "watermark-not-increasing"
    assert writer.state().transactions == 1
    assert writer.append([transaction(2)]) == [watermarks.from_int(START_US + 1001)]


def test_an_older_writer_is_fenced_off_and_changes_nothing(tmp_path: Path) -> None:
    old = writer_with_generation(tmp_path)
    old.append([transaction(1)])
    new = writer_of(tmp_path)
    with pytest.raises(StaleWriter) as refused:
        old.append([transaction(2)])
    assert "took over" in refused.value.message
    with pytest.raises(StaleWriter):
        old.prune(old.state().head)
    assert new.append([transaction(2)])[0] == new.state().head
    assert new.state().transactions == 2


def test_a_new_generation_drops_the_former_and_goes_up(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    marks = writer.append([transaction(1)])
    old_folder = writer.snapshots()[0].directory
    watermark = begin_generation(writer, tmp_path, position=9)
    state = SqliteLogReader(tmp_path).state()
    assert watermark > marks[-1]
    assert (state.generation, state.head, state.oldest, state.transactions) == (2, watermark, watermark, 0)
    assert [s.watermark for s in writer.snapshots()] == [watermark]
    assert not old_folder.exists()


def test_a_generation_starts_above_what_a_consumer_has_seen(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    seen = watermarks.from_int(START_US * 2)
    assert writer.next_generation(seen) == watermarks.from_int(START_US * 2 + 1)
    assert writer.next_generation(proposed=seen) == seen
    assert writer.next_generation(above=seen, proposed="01") > seen


def test_a_generation_cannot_start_behind_the_head(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    with pytest.raises(InvalidChange, match="snapshot-not-ahead"):
        writer.start_generation("01", 0, "{}", tmp_path / "spool" / "01", 1.0)


def test_a_lost_log_comes_back_higher_than_its_spool(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    lost = writer.state().head
    writer.close()
    (tmp_path / "log.sqlite").unlink()
    again = writer_of(tmp_path, now_us=5)
    assert again.state().generation == 0
    assert again.next_generation() > lost


def test_pruning_forgets_up_to_the_watermark_and_no_further_than_the_head(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    marks = writer.append([transaction(n) for n in range(1, 6)])
    reader = SqliteLogReader(tmp_path)
    assert writer.prune(marks[1]) == 2
    assert writer.prune(marks[0]) == 0
    assert reader.oldest() == marks[1]
    assert [s.watermark for s in reader.read_after(EMPTY, 1 << 20)] == marks[2:]
    assert writer.prune("z" * 37) == 3
    assert reader.oldest() == reader.head() == marks[-1]
    assert writer.append([transaction(6)])[0] > marks[-1]


def test_a_large_transaction_is_read_block_by_block_and_pruned_with_its_file(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    with BlockWriter(tmp_path / "segments" / "1-1.frames", block_size=64) as blocks:
        for number in range(20):
            blocks.write(frame(b'["data",%d]' % number))
        file = blocks.finish()
    marks = writer.append([spilled("big", file, 20), transaction("small")])
    reader = SqliteLogReader(tmp_path)
    (big,) = reader.read_after(EMPTY, 1)
    chunks = list(big.chunks())
    assert big.frames is None
    assert sum(map(len, chunks)) == big.size
    assert len(chunks) > 4
    assert payloads(reader)[1:21] == [b'["data",%d]' % number for number in range(20)]
    writer.prune(marks[0])
    assert list((tmp_path / "segments").iterdir()) == []
    with pytest.raises(SnapshotGone):
        list(big.chunks())


def test_pruning_leaves_segments_that_are_still_being_written(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    marks = writer.append([transaction(1)])
    staged = BlockWriter(tmp_path / "segments" / "1-2.frames")
    writer.prune(marks[0])
    staged.write(frame(b"[]"))
    writer.append([spilled(2, staged.finish(), 1)])
    assert payloads(SqliteLogReader(tmp_path))[1] == b"[]"


def test_opening_a_writer_sweeps_what_a_kill_left_behind(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    kept = writer.snapshots()[0].directory
    (tmp_path / "segments" / "orphan.frames").touch()
    (tmp_path / "spool" / "0a.partial").mkdir()
    writer.close()
    writer_of(tmp_path)
    assert list((tmp_path / "segments").iterdir()) == []
    assert list((tmp_path / "spool").iterdir()) == [kept]
