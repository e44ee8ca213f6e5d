"""The two caches under measurement, started as their users start them, behind one small interface."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.child_process import ChildProcess
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.zero_cache import QUIET, ZeroCache
from tests.support.ports import free_port
from tests.support.tools import REPOSITORY
from tests.support.waiting import until

SYNC_SECONDS = 1200


class Measured(ABC):
    """One running cache. `initial_seconds` is how long its initial sync took."""

    name: str
    port: int
    initial_seconds: float

    @property
    @abstractmethod
    def process(self) -> ChildProcess: ...

    @abstractmethod
    def watermark(self) -> str:
        """The last transaction in its replica."""

    def freeze(self) -> None:
        self.process.send_to_tree(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_to_tree(signal.SIGCONT)

    def wait_for_watermark(self, watermark: str, seconds: float = SYNC_SECONDS) -> None:
        until(lambda: self.watermark() >= watermark, f"{self.name} at {watermark}", seconds=seconds)

    def memory(self) -> int:
        """Bytes that the processes have for themselves, their share of common pages included."""
        return sum(_proportional(pid) for pid in self.process.tree())

    def cpu_seconds(self) -> float:
        """Processor time that the processes have used so far, of user and kernel."""
        return sum(_processor_time(pid) for pid in self.process.tree())


class Official(Measured):
    """zero-cache with its Postgres."""

    name = "official"

    def __init__(self, source_url: str, folder: Path, postgres: PostgresServer) -> None:
        self._cache = ZeroCache(source_url, postgres.create_database(), folder)
        self.port = self._cache.port

    @property
    def process(self) -> ChildProcess:
        return self._cache.process

    def start(self) -> None:
        process = self._cache.launch()
        begun = process.time_of(process.wait_for_line("initial sync of shard", seconds=120))
        finished = process.time_of(process.wait_for_line("finished initial-sync", seconds=SYNC_SECONDS))
        self.initial_seconds = finished - begun
        self._cache.wait_until_ready(seconds=120)
        until(lambda: _takes_connections(self.port), "zero-cache listening", seconds=60)

    def watermark(self) -> str:
        return self._cache.replica.watermark()

    def close(self) -> None:
        self._cache.close()


class Ours(Measured):
    """`changesource cache`."""

    name = "ours"

    def __init__(self, source_url: str, folder: Path) -> None:
        self.port = free_port()
        self._replica = folder / "ours-replica.db"
        self._env = {
            **{name: value for name, value in QUIET.items() if name in ("ZERO_ADMIN_PASSWORD", "ZERO_LOG_LEVEL")},
            "PYTHONPATH": str(REPOSITORY),
            "ZERO_UPSTREAM_TYPE": "custom",
            "ZERO_UPSTREAM_DB": source_url,
            "ZERO_REPLICA_FILE": str(self._replica),
            "ZERO_PORT": str(self.port),
        }

    @property
    def process(self) -> ChildProcess:
        return self._process

    def start(self) -> None:
        self._process = ChildProcess([sys.executable, "-m", "changesource_cli", "cache", "--json"], env=self._env)
        begun = self._process.time_of(self._process.wait_for_line("initial sync begins", seconds=120))
        finished = self._process.time_of(self._process.wait_for_line("initial sync complete", seconds=SYNC_SECONDS))
        self.initial_seconds = finished - begun
        self._process.wait_for_line('"ready"', seconds=120)

    def watermark(self) -> str:
        with closing(sqlite3.connect(f"file:{self._replica}?mode=ro", uri=True)) as connection:
            return str(connection.execute('SELECT version FROM "_cache.state"').fetchone()[0])

    def close(self) -> None:
        if self._process.running:
            self._process.kill()


@contextmanager
def running(name: str, source_url: str, folder: Path) -> Iterator[Measured]:
    """A cache that has done its initial sync."""
    if name == "ours":
        ours = Ours(source_url, folder)
        try:
            ours.start()
            yield ours
        finally:
            ours.close()
        return
    with PostgresServer() as postgres:
        official = Official(source_url, folder, postgres)
        try:
            official.start()
            yield official
        finally:
            official.close()


def _takes_connections(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
