"""Any Postgres database behind Zero: a snapshot by COPY, then the changes by logical replication.

`settings` explains the settings. The adapter creates a replication slot, the consumer's own tables and, unless the user
names publications, a publication (`opening`). It never writes to the user's tables. A position is the end LSN of a
commit, which is also the watermark of its transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.catalog.table_selection import SelectedTables, refuse_unknown
from adapters.postgres.checks import examine
from adapters.postgres.connection import translated_errors
from adapters.postgres.opening import open_snapshot, prepare
from adapters.postgres.replication.head import HeadReader
from adapters.postgres.settings import PostgresSettings
from adapters.postgres.snapshot import import_snapshot, table_ranges
from adapters.postgres.system_tables import as_consumers_expect
from adapters.postgres.tail import PostgresTail
from changesource_sdk import Check, Position, Snapshot, Table, Transaction
from changesource_sdk.toolkit import NOT_SYNCED, StandingWarnings, logger

_log = logger("postgres")


class PostgresAdapter:
    """Reads one database through one slot. Picklable: each call opens its own connections."""

    poll_interval = 0.0  # `changes` waits for commits itself

    def __init__(
        self,
        dsn: str,
        publication: str | Sequence[str] = (),
        tables: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        slot: str = "",
        app: str = "zero",
        shard: int | str = 0,
    ) -> None:
        self._settings = PostgresSettings.parse(dsn, publication, tables, exclude, slot, app, shard)
        self._initialise_state()

    def _initialise_state(self) -> None:
        # Both have connections, and one has threads while `changes` runs, so they are not pickled.
        self._tail = PostgresTail(self._settings)
        self._head = HeadReader(self._settings)  # see `_tail`

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._initialise_state()

    @property
    def publications(self) -> frozenset[str]:
        """The publications that a consumer may name in its request."""
        return frozenset(self._settings.data_publications)

    def tables(self) -> Sequence[Table]:
        """The synced tables in their current form. Creates what is missing in the database."""
        prepare(self._settings)
        with translated_errors(self._settings.dsn), closing(self._settings.connect()) as db:
            return self._declared(read_catalog(db, self._settings.all_publications, self._settings.selection))

    def snapshot(self) -> Snapshot:
        """The current state, which any number of sessions can read until the snapshot is closed."""
        settings = self._settings
        prepare(settings)
        exported, selected = open_snapshot(settings)
        try:
            with translated_errors(settings.dsn), closing(settings.connect()) as db:
                import_snapshot(db, settings.dsn, exported.name)
                tables = self._declared(selected)
                parts = table_ranges(db, settings.dsn, exported.name, selected.catalog, selected.types, declared=tables)
        except BaseException:
            exported.close()
            raise
        StandingWarnings(_log, NOT_SYNCED).set(selected.warnings)
        return Snapshot(exported.lsn, parts, tables=tables, close=exported.close, watermark=exported.watermark)

    def _declared(self, selected: SelectedTables) -> tuple[Table, ...]:
        refuse_unknown(self._settings.selection, selected)
        app, shard = self._settings.app, self._settings.shard
        return tuple(as_consumers_expect(table.declared(), app, shard) for table in selected.catalog.tables)

    def changes(self, after: Position) -> Iterator[Transaction]:
        """Commits after a position, as they happen, until the adapter is closed."""
        return self._tail.transactions(after)

    def examine(self) -> Sequence[Check]:
        """The checks of `changesource doctor`."""
        with translated_errors(self._settings.dsn), closing(self._settings.connect()) as db:
            return list(examine(db, self._settings))

    def acknowledge(self, position: Position) -> None:
        """Allow the server to discard what is durable in the log."""
        self._tail.acknowledge(position)

    def head(self) -> Position:
        """The end of the server's WAL, as an LSN."""
        return self._head.lsn()

    def distance(self, position: Position, head: Position) -> int | None:
        """Bytes of WAL after a position that may have changes for consumers."""
        if type(position) is not int or type(head) is not int:
            return None
        return max(0, head - self._tail.passed(position))

    def close(self) -> None:
        """Make `changes` return."""
        self._tail.close()
        self._head.close()
