"""A damaged file, a full disk, a directory that cannot be written: a clear error each, and nothing half-written."""

import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.spool.blocks import BlockFile, BlockWriter
from changesource_sdk.changelog.sqlite.connection import corrupt, translated
from changesource_sdk.changelog.sqlite.log import SqliteLog
from changesource_sdk.errors import CorruptLog, DiskFull, ReadOnlyState, SnapshotGone, StateError
from protocol.framing import frame
from tests.changesource_sdk.changelog.log_fixtures import (
    START_US,
    begin_generation,
    spilled,
    transaction,
    writer_of,
    writer_with_generation,
)


def filled_log(state: Path) -> str:
    writer = writer_with_generation(state)
    writer.append([transaction(n, "x" * 500) for n in range(1, 200)])
    head = writer.state().head
    writer.close()
    return head


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"not a database at all",
        lambda content: content[: len(content) // 2],
        lambda content: content[:8192] + os.urandom(8192) + content[16384:],
        lambda content: content[:100] + b"\0" * 4000 + content[4100:],
    ],
    ids=["no database", "truncated", "overwritten", "first page zeroed"],
)
def test_a_damaged_log_is_set_aside_and_a_higher_one_begins(
    tmp_path: Path,
    damage: Callable[[bytes], bytes],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("changesource"), "propagate", True)
    head = filled_log(tmp_path)
    log = tmp_path / "log.sqlite"
    log.write_bytes(damage(log.read_bytes()))
    writer = writer_of(tmp_path, now_us=START_US)
    assert writer.state().generation == 0
    assert (tmp_path / "log.sqlite.corrupt-1").exists()
    assert "set aside as log.sqlite.corrupt-1" in caplog.text
    assert begin_generation(writer, tmp_path, above=head) > head


def test_a_log_whose_segment_is_missing_is_damaged(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    blocks = BlockWriter(tmp_path / "segments" / "1.frames")
    blocks.write(frame(b"[]"))
    writer.append([spilled(1, blocks.finish(), 1)])
    writer.close()
    (tmp_path / "segments" / "1.frames").unlink()
    assert writer_of(tmp_path).state().generation == 0
    assert (tmp_path / "log.sqlite.corrupt-1").exists()


def test_a_reader_follows_to_the_new_file(tmp_path: Path) -> None:
    filled_log(tmp_path)
    reader = SqliteLog(StateDirectory(tmp_path))
    assert reader.state().generation == 1
    log = tmp_path / "log.sqlite"
    content = log.read_bytes()
    log.unlink()
    log.write_bytes(content[:5000])
    writer = writer_of(tmp_path)
    mark = begin_generation(writer, tmp_path)
    assert reader.state().head == mark


def test_a_reader_that_meets_damage_says_so(tmp_path: Path) -> None:
    filled_log(tmp_path)
    log = tmp_path / "log.sqlite"
    log.write_bytes(log.read_bytes()[:8192])
    with pytest.raises(CorruptLog) as met:
        SqliteLog(StateDirectory(tmp_path)).read_after("00", 1 << 30)
    assert met.value.code == "log-corrupt"


def test_a_newer_format_is_refused_and_kept(tmp_path: Path) -> None:
    filled_log(tmp_path)
    with sqlite3.connect(tmp_path / "log.sqlite") as connection:
        connection.execute("UPDATE state SET format = 99")
    connection.close()
    with pytest.raises(StateError) as refused:
        writer_of(tmp_path)
    assert refused.value.code == "log-format"
    assert not (tmp_path / "log.sqlite.corrupt-1").exists()


def test_a_full_disk_loses_nothing_and_the_append_can_be_repeated(tmp_path: Path) -> None:
    writer = writer_with_generation(tmp_path)
    writer.append([transaction(1)])
    assert isinstance(writer._log, SqliteLog)
    connection = writer._log._connection
    assert connection is not None
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    batch = [transaction(2), transaction(3, "y" * 100_000)]
    with pytest.raises(DiskFull) as full:
        writer.append(batch)
    assert full.value.code == "disk-full"
    assert SqliteLog(StateDirectory(tmp_path)).state().transactions == 1
    connection.execute("PRAGMA max_page_count = 1000000")
    assert len(writer.append(batch)) == 2
    assert SqliteLog(StateDirectory(tmp_path)).state().transactions == 3


def test_a_block_file_that_meets_a_full_disk_is_removed(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from pathlib import Path
from changesource_sdk.changelog.spool.blocks import BlockWriter
from changesource_sdk.errors import DiskFull
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
path = Path(sys.argv[1])
try:
    with BlockWriter(path, block_size=100) as blocks:
        for _ in range(100):
            blocks.write(b"x" * 50)
except DiskFull as error:
    print(error.code, path.exists())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "part")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "disk-full False\n"


def test_a_state_directory_that_cannot_be_made_is_reported_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReadOnlyState) as refused:
        StateDirectory(tmp_path / "file" / "state").create()
    assert refused.value.exit_code == 4
    assert str(tmp_path / "file" / "state") in refused.value.where


def test_a_log_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    (tmp_path / "log.sqlite").mkdir()
    with pytest.raises(ReadOnlyState, match="log-not-writable"):
        writer_of(tmp_path)


def test_an_unknown_failure_still_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="log-failed"), translated(tmp_path):
        raise sqlite3.OperationalError("database is locked")
    with pytest.raises(StateError, match="state-io"), disk_errors(tmp_path):
        raise OSError("gone")
    assert corrupt(tmp_path, "why").where == str(tmp_path)


def test_a_cut_or_altered_block_file_is_noticed(tmp_path: Path) -> None:
    with BlockWriter(tmp_path / "part", block_size=10) as blocks:
        for number in range(5):
            blocks.write(frame(b"[%d]" % number))
        file = blocks.finish()
    assert len(list(file.blocks())) == 3
    whole = file.path.read_bytes()
    for changed in (whole[:-1], whole[:-8], b"\0\0\0\x0f" + whole[4:], whole[:6] + b"!" + whole[7:]):
        file.path.write_bytes(changed)
        with pytest.raises(SnapshotGone):
            list(file.blocks())
    with pytest.raises(SnapshotGone):
        list(BlockFile(tmp_path / "absent", 0, 0).blocks())
