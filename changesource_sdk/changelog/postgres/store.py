"""The log of a cluster: tables in Postgres, snapshots in a spool that all hosts can read.

Executors append, and any number of endpoints without state of their own follow, each on its own host. What is written
once and read often, the snapshots, stays in files: in a directory shared by the pipeline and the endpoints, or under a
URI from which endpoints fetch them (`spool.remote`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.files.lock import COMPACTING, state_lock
from changesource_sdk.changelog.log import SnapshotRecord
from changesource_sdk.changelog.offers import FileOffers, Offers
from changesource_sdk.changelog.postgres.connection import Connection, LogAddress, connect, translated
from changesource_sdk.changelog.postgres.coordination import (
    PostgresOffers,
    PostgresReports,
    PostgresRequests,
    PostgresSubscribers,
)
from changesource_sdk.changelog.postgres.log import PostgresLogReader
from changesource_sdk.changelog.postgres.wakeup_listener import PostgresEar
from changesource_sdk.changelog.postgres.writer import PostgresLogWriter
from changesource_sdk.changelog.reports import FileReports
from changesource_sdk.changelog.spool.parts import LocalPlace, PartPlace, RemotePlace
from changesource_sdk.changelog.spool.remote import RemoteSpool
from changesource_sdk.changelog.spool.snapshots import Manifest, gone, is_complete, read_manifest
from changesource_sdk.changelog.writer_rules import sweep_spool
from changesource_sdk.errors import CorruptLog, StateError

_log = logging.getLogger("changesource.log")


class PostgresStore:
    """A `LogStore` in a database. Connections are opened by each process for itself and never pickled."""

    def __init__(self, address: LogAddress, layout: StateDirectory, remote: RemoteSpool | None = None) -> None:
        self.address = address
        self.layout = layout
        self.remote = remote
        self._fetching = threading.Lock()
        self.requests = PostgresRequests(address)
        self.offers: Offers = FileOffers(layout) if remote is None else PostgresOffers(address, layout, remote)
        self.reports = PostgresReports(address, FileReports(layout.stages))

    def __reduce__(self) -> tuple[type[PostgresStore], tuple[LogAddress, StateDirectory, RemoteSpool | None]]:
        return PostgresStore, (self.address, self.layout, self.remote)

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Be the one pipeline of this log, and of the state directory on this host."""
        with state_lock(self.layout.root), closing(connect(self.address)) as connection:
            self._lock_out_others(connection)
            yield

    @contextmanager
    def compacting(self) -> Iterator[None]:
        """Be the one that compacts this log, on whichever host."""
        with closing(connect(self.address)) as connection, translated(self.address.where):
            query = "SELECT pg_try_advisory_lock(hashtext(%s))"
            if connection.execute(query, (f"compaction:{self.address.schema}",)).fetchone() != (True,):
                raise StateError(
                    COMPACTING, "another process compacts this log already", self.address.where, "wait until it is done"
                )
            yield

    def _lock_out_others(self, connection: Connection) -> None:
        with translated(self.address.where):
            # A former pipeline's session may take a moment to end.
            connection.execute("SET lock_timeout = '5s'")
            try:
                connection.execute("SELECT pg_advisory_lock(hashtext(%s))", (f"pipeline:{self.address.schema}",))
            except psycopg.errors.LockNotAvailable:
                raise StateError(
                    "log-in-use",
                    "another pipeline writes this log",
                    where=self.address.where,
                    fix="stop it, run this one with --role endpoint, or give it a --log-schema of its own",
                ) from None

    def open_reader(self) -> PostgresLogReader:
        """The reading side."""
        return PostgresLogReader(self.address, self.layout.spool)

    def open_writer(self, now_us: Callable[[], int]) -> PostgresLogWriter:
        """Take over the log."""
        layout = self.layout.create()
        try:
            return PostgresLogWriter(self.address, layout, now_us, self.remote)
        except CorruptLog as error:
            _log.error("%s; set aside as %s, a new snapshot is taken", error, self.set_aside())
            return PostgresLogWriter(self.address, layout, now_us, self.remote)

    def open_subscribers(self) -> PostgresSubscribers:
        """What consumers acknowledged."""
        return PostgresSubscribers(self.address)

    def open_ear(self) -> PostgresEar:
        """Be woken when the log moves."""
        return PostgresEar(self.address)

    def holds(self, snapshot: SnapshotRecord) -> bool:
        """Whether all files of a snapshot are there."""
        return is_complete(snapshot.directory) if self.remote is None else self.remote.holds(snapshot.watermark)

    def manifest(self, snapshot: SnapshotRecord) -> Manifest:
        """What a snapshot consists of."""
        return read_manifest(snapshot.directory) if self.remote is None else self.remote.manifest(snapshot.watermark)

    def place(self, directory: Path) -> PartPlace:
        """Where tasks put parts: in the spool that all hosts reach."""
        if self.remote is None:
            return LocalPlace(directory)
        return RemotePlace(self.remote, directory.name.partition(".")[0])

    def bring(self, watermark: str, name: str, target: Path) -> None:
        """Copy one file of a snapshot from the spool that all hosts reach."""
        if self.remote is None:
            raise gone(watermark, str(self.layout.spool))
        self.remote.get(watermark, name, target)

    def fetch(self, snapshot: SnapshotRecord) -> Path:
        """The folder of a snapshot; former ones that were brought here make room for it."""
        if self.remote is None:
            return snapshot.directory
        with self._fetching:
            if not is_complete(snapshot.directory):
                spool = self.layout.create().spool
                sweep_spool(spool, [snapshot.watermark])
                self.remote.fetch(snapshot.watermark, spool)
        return snapshot.directory

    def publish(self, directory: Path) -> None:
        """Make a finished snapshot ready to be named by the log."""
        if self.remote is not None:
            self.remote.publish(directory)

    def set_aside(self) -> str | None:
        """Rename the schema of a damaged log; the new name."""
        schema = self.address.schema
        with translated(self.address.where), connect(self.address) as connection:
            query = "SELECT count(*) + 1 FROM pg_namespace WHERE starts_with(nspname, %s)"
            row = connection.execute(query, (f"{schema}_corrupt_",)).fetchone()
            kept = f"{schema}_corrupt_{row[0] if row else 1}"
            connection.execute(f'ALTER SCHEMA "{schema}" RENAME TO "{kept}"'.encode())
        return kept

    def close(self) -> None:
        """Let go of what this process opened through `requests`, `reports` and `offers`."""
        self.requests.close()
        if isinstance(self.offers, PostgresOffers):
            self.offers.close()
        self.reports.close()
