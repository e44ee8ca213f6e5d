"""Any SQLite database file behind Zero.

Settings: `path` of the database; `tables` and `exclude`, comma-separated names or globs; `poll`, the longest pause in
seconds between two looks for changes (`watch` cuts it short); `dates`, `text` or `number`, what columns declared DATE…
or TIME… hold; `exact_replace`, whether `REPLACE` is followed through unique indexes, too (`introspect.Selection`);
`scratch`, a folder for the copy a snapshot is read from. The database gets triggers and two small tables (`capture`);
its data is never touched.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

from adapters.sqlite.capture import install, prune, uninstall
from adapters.sqlite.checks import examine
from adapters.sqlite.connection import naming_the_cause, open_database, opened
from adapters.sqlite.introspect import Selection
from adapters.sqlite.snapshot import take_snapshot
from adapters.sqlite.tail import Place, Tail
from adapters.sqlite.types import Dates
from adapters.sqlite.watch import Watch
from changesource_sdk import Check, ConfigurationError, Position, Snapshot, Table, Transaction

SHORTEST_PAUSE_S = 0.0005
PAUSE_GROWTH = 1.25
ACKNOWLEDGE_KEYS = 1_000
ACKNOWLEDGE_AFTER_S = 2.0
ACKNOWLEDGE_PATIENCE_S = 0.05


class SqliteAdapter:
    """Reads one database file. Picklable: connections belong to the calls that need them."""

    poll_interval = 0.0

    def __init__(
        self,
        path: str,
        tables: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        poll: float | str = 0.01,
        dates: str = "text",
        exact_replace: bool | str = False,
        scratch: str | None = None,
    ) -> None:
        self._path = str(path)
        self._selection = Selection(_names(tables), _names(exclude), _dates(dates), _truth(exact_replace))
        self._longest_pause = _seconds(poll)
        self._scratch = scratch
        self._reset()

    def _reset(self) -> None:
        self._closed = threading.Event()
        self._pruned = 0
        self._put_off = False
        self._tried_at = float("-inf")

    def __getstate__(self) -> dict[str, Any]:
        settings = ("_path", "_selection", "_longest_pause", "_scratch")
        return {name: getattr(self, name) for name in settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def tables(self) -> Sequence[Table]:
        """The tables that are synced, as they are now. Installs the capture."""
        with opened(self._path) as db:
            return [table.declared() for table in install(db, self._selection).catalog.tables]

    def snapshot(self) -> Snapshot:
        """The state now, from a private copy that lives until the snapshot is closed."""
        with opened(self._path) as db:
            return take_snapshot(db, self._path, self._selection, self._scratch)

    def changes(self, after: Position) -> Generator[Transaction, None, None]:
        """What was committed after a position, as it comes, until the adapter is closed."""
        with closing(open_database(self._path)) as db, closing(Watch(self._path, self._closed)) as watch:
            tail = Tail(db, self._path, self._selection, after)
            pause, seen = SHORTEST_PAUSE_S, -1
            while not self._closed.is_set():
                version = self._data_version(db)
                batch = tail.next_batch() if version != seen else None
                seen = version
                if batch is not None:
                    yield batch
                    pause, seen = SHORTEST_PAUSE_S, -1
                    continue
                pause = self._next_pause(pause, watch.wait(pause))

    def _next_pause(self, pause: float, stirred: bool) -> float:
        """How long to wait before the next look; a store that stirs again and again, as in a long write, is looked at
        now and then and not at every page.
        """
        if not stirred:
            return min(pause * PAUSE_GROWTH, self._longest_pause)
        if pause <= SHORTEST_PAUSE_S:
            self._closed.wait(SHORTEST_PAUSE_S)
        return SHORTEST_PAUSE_S

    def _data_version(self, db: sqlite3.Connection) -> int:
        """Moves whenever another connection has committed."""
        with naming_the_cause(self._path):
            return int(db.execute("PRAGMA data_version").fetchone()[0])

    def acknowledge(self, position: Position) -> None:
        """Forget recorded keys up to a position: now and then, and later if the database is busy."""
        place, waited = Place.at(position), time.monotonic() - self._tried_at
        due = waited > ACKNOWLEDGE_AFTER_S or (place.sequence - self._pruned >= ACKNOWLEDGE_KEYS and not self._put_off)
        if not due:
            return
        self._put_off, self._tried_at = True, time.monotonic()
        with contextlib.suppress(sqlite3.OperationalError), closing(open_database(self._path)) as db:
            prune(db, place.sequence, place.version, ACKNOWLEDGE_PATIENCE_S)
            self._pruned, self._put_off = place.sequence, False

    def close(self) -> None:
        """Make `changes` return."""
        self._closed.set()

    def examine(self) -> Sequence[Check]:
        """What there is to say about the database; changes nothing in it."""
        with opened(self._path) as db:
            return list(examine(db, self._path, self._selection))

    def uninstall(self) -> None:
        """Take triggers and tables out of the database again; positions are void afterwards."""
        with opened(self._path) as db:
            uninstall(db)


def _names(setting: str | Sequence[str]) -> tuple[str, ...]:
    parts = setting.split(",") if isinstance(setting, str) else setting
    return tuple(name.strip() for name in parts if name.strip())


def _dates(setting: str) -> Dates:
    match setting:
        case "text" | "number":
            return setting
    raise _bad_setting("dates", setting, "use `text` or `number`")


def _truth(setting: bool | str) -> bool:
    if str(setting).lower() in ("true", "false"):
        return str(setting).lower() == "true"
    raise _bad_setting("exact_replace", setting, "use `true` or `false`")


def _seconds(setting: float | str) -> float:
    try:
        seconds = float(setting)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 60:
        raise _bad_setting("poll", setting, "give seconds above 0 and up to 60, such as 0.01")
    return max(seconds, SHORTEST_PAUSE_S)


def _bad_setting(name: str, value: object, fix: str) -> ConfigurationError:
    return ConfigurationError("bad-setting", f"the setting `{name}` cannot be {value!r}", where=name, fix=fix)
