"""The pipeline's side of the ledger file: read what was appended, and settle what is durable in the log.

Settling moves entries into the two `settled_` tables, from which a new snapshot begins; the file stays as small as what
has not reached the log, plus a row per client. One connection belongs to one thread.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from changesource_sdk.errors import AdapterError, ConfigurationError
from changesource_sdk.ledger.entries import LedgerEntry, client_row, result_row
from protocol.ledger_file import DEFAULT_SCHEMA, STATEMENTS
from service_kit.sqlite import connect

BUSY_SECONDS = 30.0

_ENTRIES = (
    "SELECT sequence, kind, client_group, client, mutation, result, positions FROM entry WHERE sequence > ? "
    "ORDER BY sequence"
)
_SETTLE = (
    "INSERT OR REPLACE INTO settled_client SELECT client_group, client, max(mutation) FROM entry "
    "WHERE sequence <= ? AND kind = 'confirm' GROUP BY client_group, client",
    "INSERT OR REPLACE INTO settled_result SELECT client_group, client, mutation, result FROM entry "
    "WHERE sequence <= ? AND kind = 'confirm' AND result IS NOT NULL",
    "DELETE FROM settled_result WHERE EXISTS (SELECT 1 FROM entry AS seen "
    "WHERE seen.sequence <= ? AND seen.kind = 'forget' "
    "AND seen.client_group = settled_result.client_group AND seen.client = settled_result.client "
    "AND seen.mutation = settled_result.mutation)",
    "DELETE FROM entry WHERE sequence <= ?",
)


class LedgerFile:
    """An open ledger, for one thread. Invariant: settled entries and those after them are all that were appended."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        try:
            self._db = connect(path, busy_seconds=BUSY_SECONDS)
            for statement in STATEMENTS:
                self._db.execute(statement, (DEFAULT_SCHEMA,) if "?" in statement else ())
            self.id, self.schema = self._db.execute("SELECT id, schema FROM ledger").fetchone()
        except sqlite3.Error as error:
            raise ConfigurationError(
                "ledger-unusable",
                f"the ledger cannot be opened: {error}",
                where=self._path,
                fix="give the file the application's server confirms mutations in, writable for the pipeline",
            ) from error

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    @property
    def settled(self) -> int:
        """Sequence number of the last entry that was settled, 0 before the first."""
        (sequence,) = self._db.execute("SELECT settled FROM ledger").fetchone()
        return int(sequence)

    @property
    def last(self) -> int:
        """Sequence number of the newest entry ever appended, 0 before the first."""
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entry'").fetchone()
        return int(row[0]) if row else 0

    def version(self) -> int:
        """A number that changes when another connection commits."""
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def after(self, sequence: int) -> list[LedgerEntry]:
        """The entries after this sequence number, in order. Raises `AdapterError` if the file cannot be read."""
        with self._named():
            return [
                LedgerEntry(number, kind, group, client, mutation, result, json.loads(positions))
                for number, kind, group, client, mutation, result, positions in self._db.execute(_ENTRIES, (sequence,))
            ]

    def settled_rows(self) -> tuple[int, list[dict[str, object]], list[dict[str, object]], list[LedgerEntry]]:
        """The last settled entry, the rows of both tables then, and the entries since: all of one moment."""
        with self._named(), self._transaction("BEGIN"):
            clients = self._db.execute("SELECT client_group, client, last_mutation FROM settled_client")
            results = self._db.execute("SELECT client_group, client, mutation, result FROM settled_result")
            settled = self.settled
            return (
                settled,
                [client_row(*row) for row in clients],
                [result_row(*row) for row in results],
                self.after(settled),
            )

    def settle(self, sequence: int) -> None:
        """Everything up to this entry is durable elsewhere. Doing it again changes nothing."""
        with self._named(), self._transaction("BEGIN IMMEDIATE"):
            if sequence > self.settled:
                for statement in _SETTLE:
                    self._db.execute(statement, (sequence,))
                self._db.execute("UPDATE ledger SET settled = ?", (sequence,))

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._db.execute(begin)
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise AdapterError(
                "ledger-failed", f"the ledger cannot be read: {error}", self._path, "check the file and its disk"
            ) from error
