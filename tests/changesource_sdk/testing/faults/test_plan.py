"""Plans of faults: seeded, with receipts, and honest about what never fired."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from changesource_sdk.testing.faults import FaultNeverFired, Faults
from changesource_sdk.testing.faults.state_faults import ROOM_LEFT


def fired_at(seed: int) -> list[int]:
    faults = Faults(seed)
    fault = faults.plan("drop", times=3, within=50)
    for _ in range(50):
        fault.fires("somewhere")
    return [receipt.opportunity for receipt in faults.receipts]


def test_the_same_seed_plans_the_same_faults() -> None:
    assert fired_at(7) == fired_at(7)
    assert fired_at(7) != fired_at(8)
    assert len(fired_at(7)) == 3


def test_a_receipt_tells_what_was_hit() -> None:
    faults = Faults(1)
    assert faults.plan("drop", within=1).fires("position 4")
    (receipt,) = faults.receipts
    assert (receipt.fault, receipt.opportunity, receipt.where) == ("drop", 0, "position 4")


def test_a_run_in_which_a_fault_never_fired_fails() -> None:
    faults = Faults(5)
    faults.plan("drop", within=1).fires("here")
    faults.plan("delay")
    with pytest.raises(FaultNeverFired, match=r"never fired: delay \(seed 5\)"):
        faults.settle()


def test_a_run_in_which_all_fired_is_settled() -> None:
    faults = Faults(5)
    faults.plan("drop", within=1).fires("here")
    faults.settle()
    assert [receipt.fault for receipt in faults.receipts] == ["drop"]


def test_kill_ends_a_process_and_says_so() -> None:
    faults = Faults(1)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        faults.kill(process.pid)
        assert process.wait(60) == -signal.SIGKILL
    assert [receipt.fault for receipt in faults.receipts] == ["kill"]


def test_a_truncated_log_is_half_of_what_it_was(tmp_path: Path) -> None:
    (tmp_path / "log.sqlite").write_bytes(b"x" * 1000)
    (tmp_path / "log.sqlite-wal").write_bytes(b"y")
    faults = Faults(1)
    faults.truncate_log(tmp_path)
    assert (tmp_path / "log.sqlite").stat().st_size == 500
    assert not (tmp_path / "log.sqlite-wal").exists()
    assert [receipt.fault for receipt in faults.receipts] == ["truncate log"]


WRITER = """
import sys
for line in sys.stdin:
    try:
        with open(sys.argv[1], "wb") as file:
            file.write(bytes(int(line)))
        print("written", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


def test_a_full_disk_takes_little_until_there_is_room_again(tmp_path: Path) -> None:
    faults = Faults(1)
    command = [sys.executable, "-c", WRITER, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def write(size: int) -> str:
            print(size, file=process.stdin, flush=True)
            return process.stdout.readline().strip() if process.stdout else ""

        assert write(2 * ROOM_LEFT) == "written"
        make_room = faults.fill_disk(process.pid)
        assert write(ROOM_LEFT) == "written"
        assert os.strerror(int(write(2 * ROOM_LEFT))) == "File too large"
        make_room()
        assert write(2 * ROOM_LEFT) == "written"
        process.stdin.close()
