"""Looking for schema changes that nobody announced, and announcing them in the stream.

Where event triggers cannot be made this is how schema changes become known; where they can, it is the net below them:
triggers can be dropped or switched off. The announcement goes through the stream itself, so it has its place among the
rows: behind everything the described catalog was made by.
"""

from __future__ import annotations

import logging
import threading
import time

from adapters.postgres.catalog.model import Catalog
from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.connection import Connection, naming_the_cause
from adapters.postgres.schema_changes.capture import PREFIX, described
from adapters.postgres.settings import PostgresSettings
from changesource_sdk import ChangesourceError
from changesource_sdk.toolkit import event, logger

ALONE_S = 1.0
BELOW_TRIGGERS_S = 10.0
SHARE = 10
"""Looking takes at most one part of so many of the time: a large catalog is looked at less often."""
_DESCRIBED = described("''", "%(publications)s::text[]")
_ANNOUNCE = f"SELECT pg_logical_emit_message(true, %(prefix)s, ({_DESCRIBED})::text)"
_log = logger("postgres")


class Watcher:
    """A thread that compares the catalog with `known`, which the reader of the stream keeps up to date."""

    def __init__(self, settings: PostgresSettings, known: Catalog, *, has_triggers: bool) -> None:
        self.known = known
        self._settings = settings
        self._interval = BELOW_TRIGGERS_S if has_triggers else ALONE_S
        self._asked = threading.Event()
        self._closed = False
        self._announced: Catalog | None = None
        self._must_announce = False
        self._thread = threading.Thread(target=self._run, name="changesource-watch", daemon=True)

    def start(self) -> None:
        """Look at once, and then now and then."""
        self._asked.set()
        self._thread.start()

    def look(self, *, announce: bool = False) -> None:
        """Look now; with `announce`, say how things are even if nothing seems new."""
        self._must_announce = self._must_announce or announce
        self._asked.set()

    def close(self) -> None:
        """End the thread soon."""
        self._closed = True
        self._asked.set()

    def _run(self) -> None:
        db: Connection | None = None
        took = 0.0
        while not self._closed:
            self._asked.wait(max(self._interval, took * SHARE))
            self._asked.clear()
            if self._closed:
                break
            began = time.monotonic()
            try:
                db = db or self._settings.connect()
                with naming_the_cause(self._settings.dsn):
                    self._compare(db)
                took = time.monotonic() - began
            except ChangesourceError as error:
                # The reader of the stream meets what is wrong with the store; here it is tried again.
                event(_log, logging.DEBUG, "cannot look for schema changes", code=error.code, reason=error.message)
                if db is not None:
                    db.close()
                    db = None
        if db is not None:
            db.close()

    def _compare(self, db: Connection) -> None:
        found = read_catalog(db, self._settings.all_publications, self._settings.selection).catalog
        if self._must_announce or found not in (self.known, self._announced):
            self._must_announce = False
            publications = list(self._settings.all_publications)
            prefix = f"{PREFIX}{self._settings.slot}"
            db.execute(_ANNOUNCE.encode(), {"publications": publications, "prefix": prefix})
            self._announced = found
