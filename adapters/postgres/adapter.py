"""Any Postgres database behind Zero: a snapshot by COPY, then the changes by logical replication.

`settings` describes what a user sets. The database gets a replication slot, the consumer's own tables and, unless the
user names some, a publication (`opening`); the user's tables are never written to. Positions are log sequence numbers:
the end of a commit, which is also the watermark of its transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.catalog.table_selection import Found, refuse_unknown
from adapters.postgres.checks import examine
from adapters.postgres.connection import naming_the_cause
from adapters.postgres.opening import open_snapshot, prepare
from adapters.postgres.settings import PostgresSettings
from adapters.postgres.snapshot import import_snapshot, table_ranges
from adapters.postgres.system_tables import as_consumers_expect
from adapters.postgres.tail import Stream
from changesource_sdk import Check, Position, Snapshot, Table, Transaction
from changesource_sdk.toolkit import NOT_SYNCED, StandingWarnings, logger

_log = logger("postgres")


class PostgresAdapter:
    """Reads one database through one slot. Picklable: connections belong to the calls that need them."""

    poll_interval = 0.0

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
        self._stream = Stream(self._settings)

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._stream = Stream(self._settings)

    @property
    def publications(self) -> frozenset[str]:
        """What a consumer may ask for by name."""
        return frozenset(self._settings.data_publications)

    def tables(self) -> Sequence[Table]:
        """The tables that are synced, as they are now."""
        prepare(self._settings)
        with naming_the_cause(self._settings.dsn), closing(self._settings.connect()) as db:
            return self._declared(read_catalog(db, self._settings.all_publications, self._settings.selection))

    def snapshot(self) -> Snapshot:
        """The state now, readable by any number of sessions until the snapshot is closed."""
        settings = self._settings
        prepare(settings)
        exported, found = open_snapshot(settings)
        try:
            with naming_the_cause(settings.dsn), closing(settings.connect()) as db:
                import_snapshot(db, settings.dsn, exported.name)
                tables = self._declared(found)
                parts = table_ranges(db, settings.dsn, exported.name, found.catalog, found.types, declared=tables)
        except BaseException:
            exported.close()
            raise
        StandingWarnings(_log, NOT_SYNCED).set(found.warnings)
        return Snapshot(exported.lsn, parts, tables=tables, close=exported.close, watermark=exported.watermark)

    def _declared(self, found: Found) -> tuple[Table, ...]:
        refuse_unknown(self._settings.selection, found)
        app, shard = self._settings.app, self._settings.shard
        return tuple(as_consumers_expect(table.declared(), app, shard) for table in found.catalog.tables)

    def changes(self, after: Position) -> Iterator[Transaction]:
        """What was committed after a position, as it comes, until the adapter is closed."""
        return self._stream.transactions(after)

    def examine(self) -> Sequence[Check]:
        """What the database allows and lacks."""
        with naming_the_cause(self._settings.dsn), closing(self._settings.connect()) as db:
            return list(examine(db, self._settings))

    def acknowledge(self, position: Position) -> None:
        """Let the server forget what is durable in the log."""
        self._stream.acknowledge(position)

    def close(self) -> None:
        """Make `changes` return."""
        self._stream.close()
