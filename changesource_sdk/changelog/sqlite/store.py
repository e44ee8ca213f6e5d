"""The log of one host: SQLite and files in the state directory. The default store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.files.lock import compaction_lock, state_lock
from changesource_sdk.changelog.log import SnapshotRecord
from changesource_sdk.changelog.offers import FileOffers
from changesource_sdk.changelog.reports import FileReports
from changesource_sdk.changelog.requests import FileRequests
from changesource_sdk.changelog.spool.parts import LocalPlace
from changesource_sdk.changelog.spool.snapshots import Manifest, gone, is_complete, read_manifest
from changesource_sdk.changelog.sqlite.connection import set_aside
from changesource_sdk.changelog.sqlite.log import SqliteLogReader
from changesource_sdk.changelog.sqlite.subscribers import SqliteSubscribers
from changesource_sdk.changelog.sqlite.writer import SqliteLogWriter, open_writer
from changesource_sdk.changelog.wakeup import PokeReceiver


@dataclass(frozen=True, slots=True)
class SqliteStore:
    """A `LogStore` that is a directory; every process that uses it is on the same host."""

    state_directory: Path
    spool: Path | None = None

    @property
    def layout(self) -> StateDirectory:
        """The directories beside the log."""
        return StateDirectory(self.state_directory, self.spool)

    @property
    def requests(self) -> FileRequests:
        """What endpoints ask of the pipeline."""
        return FileRequests(self.state_directory)

    @property
    def reports(self) -> FileReports:
        """How far the stages are."""
        return FileReports(self.layout.stages)

    @property
    def offers(self) -> FileOffers:
        """Compacted snapshots that wait for the writer."""
        return FileOffers(self.layout)

    def claim(self) -> AbstractContextManager[None]:
        """Be the one pipeline of this directory."""
        return state_lock(self.state_directory)

    def compacting(self) -> AbstractContextManager[None]:
        """Be the one that compacts this log."""
        return compaction_lock(self.state_directory)

    def open_reader(self) -> SqliteLogReader:
        """The reading side; the log need not exist yet."""
        return SqliteLogReader(self.state_directory, self.spool)

    def open_writer(self, now_us: Callable[[], int]) -> SqliteLogWriter:
        """Take over the log."""
        return open_writer(self.state_directory, now_us, self.spool)

    def open_subscribers(self) -> SqliteSubscribers:
        """What consumers acknowledged."""
        return SqliteSubscribers(self.state_directory)

    def open_ear(self) -> PokeReceiver:
        """Be woken when the log moves."""
        return PokeReceiver(self.layout.pokes)

    def holds(self, snapshot: SnapshotRecord) -> bool:
        """Whether all files of a snapshot are there."""
        return is_complete(snapshot.directory)

    def manifest(self, snapshot: SnapshotRecord) -> Manifest:
        """What a snapshot consists of."""
        return read_manifest(snapshot.directory)

    def place(self, directory: Path) -> LocalPlace:
        """Where tasks put parts: where they belong."""
        return LocalPlace(directory)

    def bring(self, watermark: str, name: str, target: Path) -> None:
        """There is no other host."""
        raise gone(watermark, str(self.layout.spool))

    def fetch(self, snapshot: SnapshotRecord) -> Path:
        """The folder of a snapshot."""
        return snapshot.directory

    def publish(self, directory: Path) -> None:
        """Files are where they are served."""

    def set_aside(self) -> str | None:
        """Rename a damaged log; the new name."""
        return set_aside(self.layout.log).name if self.layout.log.exists() else None

    def close(self) -> None:
        """Nothing is held."""
