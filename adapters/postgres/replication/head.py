"""How far the server's WAL is, on a connection of its own that is opened again after it was lost."""

from __future__ import annotations

import threading

from adapters.postgres.connection import Connection, translated_errors
from adapters.postgres.settings import PostgresSettings

_HEAD = """SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
  - '0/0'::pg_lsn)::bigint"""


class HeadReader:
    """Used by one thread; `close` may be called from another."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._closed = threading.Event()
        # Opened by the first call of `lsn`, and again after it was lost.
        self._connection: Connection | None = None

    def lsn(self) -> int:
        """The end of the WAL that is durable. Raises `AdapterError` while the server does not answer."""
        with translated_errors(self._settings.dsn):
            if self._connection is None or self._connection.closed:
                self._connection = self._settings.connect()
            row = self._connection.execute(_HEAD).fetchone()
        assert row is not None
        if self._closed.is_set():
            self.close()
        return int(row[0])

    def close(self) -> None:
        """End the session."""
        self._closed.set()
        if self._connection is not None:
            self._connection.close()
