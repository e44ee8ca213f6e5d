"""A process (with all its descendants) under test: its output captured line by line, its whole tree ended together.

Contract: `stop()` and `kill()` reach every descendant, also those in process groups of their own (zero-cache's
workers are), since each carries a mark in its environment; nothing is left behind. `wait_for_line` returns on
the line's arrival, or fails at once, with the last lines, when the process ends without it.
"""

from __future__ import annotations

import os
import resource
import secrets
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.waiting import LONGEST_WAIT_S

STOP_SECONDS = 90
MARK = "TEST_PROCESS_TREE"


class ChildProcess:
    """One run of one command; `lines` only grows, and `code` is None until the process has ended."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        on_exit: Callable[[int], None] | None = None,
        limits: Mapping[int, int] | None = None,
        takes_lines: bool = False,
    ) -> None:
        self.lines: list[str] = []
        self._times: list[float] = []
        self.code: int | None = None
        self._changed = threading.Condition()
        self._on_exit = on_exit
        self._mark = secrets.token_hex(8)
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **(env or {}), MARK: self._mark},
            cwd=cwd,
            stdin=subprocess.PIPE if takes_lines else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        for limit, value in (limits or {}).items():
            resource.prlimit(self.pid, limit, (value, resource.RLIM_INFINITY))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._reap, daemon=True).start()

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self.code is None

    def wait_for_line(self, text: str, *, seconds: float = LONGEST_WAIT_S, after: int = 0) -> int:
        """Wait for a line that holds `text`, from line number `after` on; return the number of the line after it."""
        seen = after
        with self._changed:
            while True:
                for number in range(seen, len(self.lines)):
                    if text in self.lines[number]:
                        return number + 1
                seen = len(self.lines)
                if not self.running:
                    raise AssertionError(f"process ended with {self.code} before {text!r}:\n{self.tail()}")
                if not self._changed.wait(seconds):
                    raise AssertionError(f"no line with {text!r} for {seconds:g} s:\n{self.tail()}")

    def write_line(self, text: str) -> None:
        """Give a process that `takes_lines` one more."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def time_of(self, after: int) -> float:
        """When the line came that `wait_for_line` found (it returns the number after it), on the monotonic clock."""
        return self._times[after - 1]

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for the end and return the exit code (negative: the signal)."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.code is not None, seconds):
                raise AssertionError(f"still running after {seconds:g} s:\n{self.tail()}")
            assert self.code is not None
            return self.code

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the leader alone."""
        _signal(self.pid, number)

    def send_to_tree(self, number: signal.Signals) -> None:
        """Send a signal to the leader and every descendant."""
        for pid in self.tree():
            _signal(pid, number)

    def tree(self) -> list[int]:
        """Process ids of the leader and all its descendants that are alive, zombies left out."""
        mark = f"{MARK}={self._mark}".encode()
        found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _carries(entry, mark)]
        return sorted({self.pid, *found} if self._process.returncode is None else found)

    def limit(self, number: int, value: int) -> None:
        """Set a soft resource limit of every process of the tree."""
        for pid in self.tree():
            resource.prlimit(pid, number, (value, resource.RLIM_INFINITY))

    def open_files(self) -> int:
        """How many descriptors the leader holds."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def peak_memory(self) -> int:
        """The most memory the leader ever had resident, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))

    def stop(self, *, seconds: float = STOP_SECONDS) -> int:
        """SIGTERM the leader, let it wind down, then make sure that nothing of the tree is left."""
        self.send(signal.SIGTERM)
        try:
            return self.wait(seconds)
        finally:
            self._kill_tree()

    def kill(self) -> int:
        """SIGKILL the whole tree."""
        self._kill_tree()
        return self.wait()

    def tail(self, count: int = 40) -> str:
        return "\n".join(self.lines[-count:])

    def _kill_tree(self) -> None:
        while pids := self.tree():  # again, for those forked while we looked
            for pid in pids:
                _signal(pid, signal.SIGKILL)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._times.append(time.monotonic())
                self._changed.notify_all()

    def _is_unread(self) -> bool:
        """Whether something waits in the pipe."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def _reap(self) -> None:
        code = self._process.wait()
        while self._reader.is_alive() and self._is_unread():
            self._reader.join(0.05)
        self._reader.join(1)  # descendants may hold the pipe open; what the leader said is in by then
        with self._changed:
            self.code = code
            self._changed.notify_all()
        if self._on_exit is not None:
            self._on_exit(code)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _carries(process: Path, mark: bytes) -> bool:
    try:
        return mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
