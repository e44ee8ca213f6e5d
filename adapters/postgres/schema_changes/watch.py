"""Polls the catalog for schema changes that no trigger announced, and announces them in the stream.

Where event triggers cannot be created, this is how schema changes are noticed. Where they can, it is a safety net:
triggers can be dropped or disabled. The announcement goes through the stream, so it is ordered with the rows: after
everything that made the described catalog.
"""

from __future__ import annotations

import logging
import threading
import time

from adapters.postgres.catalog.model import Catalog
from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.connection import Connection, translated_errors
from adapters.postgres.schema_changes.capture import PREFIX, described
from adapters.postgres.settings import PostgresSettings
from changesource_sdk import ChangesourceError
from changesource_sdk.toolkit import event, logger

ALONE_S = 1.0
WITH_TRIGGERS_S = 10.0
PAUSE_FACTOR = 10
"""The pause is at least so many times the duration of the last poll, so that a large catalog is polled less often."""
_DESCRIBED = described("''", "%(publications)s::text[]")
_ANNOUNCE = f"SELECT pg_logical_emit_message(true, %(prefix)s, ({_DESCRIBED})::text)"
_log = logger("postgres")


class Watcher:
    """A thread, `changesource-watch`, that compares the catalog with `known`."""

    def __init__(self, settings: PostgresSettings, known: Catalog, *, has_triggers: bool) -> None:
        # The catalog that consumers have; written by the reading thread (`ChangeReader`).
        self.known = known
        self._settings = settings
        self._interval = WITH_TRIGGERS_S if has_triggers else ALONE_S
        # Set by `start`, `check_now` and `close`; ends the pause of the thread.
        self._wake = threading.Event()
        self._closed = False  # set by `close`
        # The catalog that this thread announced last, so that it is not announced again until the reader has it.
        self._announced: Catalog | None = None
        self._must_announce = False  # set by `check_now`, cleared by this thread
        self._thread = threading.Thread(target=self._run, name="changesource-watch", daemon=True)

    def start(self) -> None:
        """Start the thread; it polls at once."""
        self._wake.set()
        self._thread.start()

    def check_now(self, *, announce: bool = False) -> None:
        """Poll now; with `announce`, announce the catalog even if it is unchanged. Called by the reading thread."""
        self._must_announce = self._must_announce or announce
        self._wake.set()

    def close(self) -> None:
        """Make the thread end soon; does not wait for it."""
        self._closed = True
        self._wake.set()

    def _run(self) -> None:
        db: Connection | None = None
        took = 0.0
        while not self._closed:
            self._wake.wait(max(self._interval, took * PAUSE_FACTOR))
            self._wake.clear()
            if self._closed:
                break
            began = time.monotonic()
            try:
                db = db or self._settings.connect()
                with translated_errors(self._settings.dsn):
                    self._compare(db)
                took = time.monotonic() - began
            except ChangesourceError as error:
                # The reading thread meets the same problem and reports it; here the next poll tries again.
                event(_log, logging.DEBUG, "cannot look for schema changes", code=error.code, reason=error.message)
                if db is not None:
                    db.close()
                    db = None
        if db is not None:
            db.close()

    def _compare(self, db: Connection) -> None:
        present = read_catalog(db, self._settings.all_publications, self._settings.selection).catalog
        if self._must_announce or present not in (self.known, self._announced):
            self._must_announce = False
            publications = list(self._settings.all_publications)
            prefix = f"{PREFIX}{self._settings.slot}"
            db.execute(_ANNOUNCE.encode(), {"publications": publications, "prefix": prefix})
            self._announced = present
