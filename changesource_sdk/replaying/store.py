"""A store whose log is another's, seen through a window; everything that is written goes to a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.log import LogWriter, SnapshotRecord
from changesource_sdk.changelog.offers import FileOffers
from changesource_sdk.changelog.reports import Reports
from changesource_sdk.changelog.spool.parts import PartPlace
from changesource_sdk.changelog.spool.snapshots import Manifest
from changesource_sdk.changelog.sqlite.store import SqliteStore
from changesource_sdk.changelog.store import Ear, LogStore, Requests
from changesource_sdk.changelog.subscribers import Subscribers
from changesource_sdk.errors import StateError
from changesource_sdk.replaying.window import Window, WindowedReader


class ReplayStore:
    """A `LogStore` for endpoints only: what consumers acknowledge and ask for never reaches the log's own store."""

    def __init__(self, log: LogStore, window: Window, folder: Path) -> None:
        self._log = log
        self._window = window
        self._own = SqliteStore(folder)

    @property
    def layout(self) -> StateDirectory:
        return self._own.layout

    @property
    def requests(self) -> Requests:
        return self._own.requests

    @property
    def reports(self) -> Reports:
        return self._own.reports

    @property
    def offers(self) -> FileOffers:
        return self._own.offers

    def open_reader(self) -> WindowedReader:
        return WindowedReader(self._log.open_reader(), self._window)

    def open_subscribers(self) -> Subscribers:
        return self._own.open_subscribers()

    def open_ear(self) -> Ear:
        return self._own.open_ear()

    def holds(self, snapshot: SnapshotRecord) -> bool:
        return self._log.holds(snapshot)

    def manifest(self, snapshot: SnapshotRecord) -> Manifest:
        return self._log.manifest(snapshot)

    def bring(self, watermark: str, name: str, target: Path) -> None:
        self._log.bring(watermark, name, target)

    def fetch(self, snapshot: SnapshotRecord) -> Path:
        return self._log.fetch(snapshot)

    def claim(self) -> AbstractContextManager[None]:
        raise _read_only()

    def compacting(self) -> AbstractContextManager[None]:
        raise _read_only()

    def open_writer(self, now_us: Callable[[], int]) -> LogWriter:
        raise _read_only()

    def place(self, directory: Path) -> PartPlace:
        raise _read_only()

    def publish(self, directory: Path) -> None:
        raise _read_only()

    def set_aside(self) -> str | None:
        raise _read_only()

    def close(self) -> None:
        self._own.close()


def _read_only() -> StateError:
    return StateError("read-only", "a replay only reads the log", fix="run this on the log itself")
