"""A file lock is held by one at a time, and names its holder."""

from __future__ import annotations

import os
from pathlib import Path

from service_kit.file_lock import FileLock


def test_a_second_one_does_not_get_the_lock_until_the_first_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with FileLock(path) as first, FileLock(path) as second:
        assert first.acquire()
        assert not second.acquire()
        assert second.holder() == "unknown"
        first.sign()
        assert second.holder() == str(os.getpid())
    with FileLock(path) as third:
        assert third.acquire()


def test_a_longer_id_of_a_former_holder_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    path.write_text("12345678901234567890")
    with FileLock(path) as lock:
        lock.sign()
        assert lock.holder() == str(os.getpid())


def test_the_file_is_private(tmp_path: Path) -> None:
    with FileLock(tmp_path / "x.lock"):
        assert (tmp_path / "x.lock").stat().st_mode & 0o777 == 0o600
