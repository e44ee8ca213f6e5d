"""`changesource serve` as a process of its own, with the memory store, on a free port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Served:
    """A running `serve`; the first line it prints says where it listens."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.listening = json.loads(process.stdout.readline())
        self.url = str(self.listening["url"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=90)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "CHANGESOURCE_RUNNER": "inline"}


def run(*arguments: str, cwd: Path, file_size: int | None = None) -> subprocess.CompletedProcess[str]:
    """A command to its end; no file it writes may grow beyond `file_size`."""
    command = [sys.executable, "-m", "changesource_cli", *arguments]
    if file_size is not None:
        limited = "import resource, os, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)"
        command = [sys.executable, "-c", f"{limited}; os.execv(sys.argv[2], sys.argv[2:])", str(file_size), *command]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=cwd, timeout=120)


StartServe = Callable[..., Served]


@pytest.fixture
def data_file(tmp_path: Path) -> Path:
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"issue": [{"id": "1", "title": "one"}, {"id": "2", "title": "two"}]}))
    return path


@pytest.fixture
def start_serve(tmp_path: Path, data_file: Path) -> Iterator[StartServe]:
    started: list[Served] = []

    def start(*options: str) -> Served:
        command = [sys.executable, "-m", "changesource_cli", "serve", "memory", "--json"]
        command += [
            "--set",
            f"file={data_file}",
            "--listen",
            "127.0.0.1:0",
            "--state",
            str(tmp_path / "state"),
            *options,
        ]
        pipe = subprocess.PIPE
        served = Served(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment(), cwd=tmp_path))
        started.append(served)
        return served

    yield start
    for served in started:
        if served.process.poll() is None:
            served.process.kill()
        served.process.communicate()
