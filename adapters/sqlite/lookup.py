"""One table's rows in the open read transaction: all of them, or those whose keys were recorded.

Each recorded key is looked up once, however often it was recorded. If its row exists, it becomes an insert or an
update, otherwise a delete. Queries and row readers are made once per schema version.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from adapters.sqlite.catalog.introspect import quoted
from adapters.sqlite.catalog.model import TableDef
from adapters.sqlite.rows import StoredRowReader, ValueMisfit
from adapters.sqlite.triggers import CHANGES, INSERTED, key_columns
from adapters.sqlite.types import Stored
from changesource_sdk import AdapterError, BadRow, Change, Delete, Insert, Update


class TableLookup:
    """Reads one table under one definition."""

    def __init__(self, table: TableDef) -> None:
        self.table = table
        self._reader = StoredRowReader(table)
        self._query = touched_query(table)

    def all_rows(self, db: sqlite3.Connection) -> Iterator[Change]:
        """Every row, as an insert."""
        name, columns = self.table.name, ", ".join(map(quoted, self.table.column_names))
        stored = db.execute(f"SELECT {columns} FROM {quoted(name)}")
        return (row if isinstance(row, BadRow) else Insert(name, row) for row in self._reader.rows(stored))

    def touched_rows(self, db: sqlite3.Connection, after: int, head: int) -> Iterator[Change]:
        """The present state of each key recorded after `after` and up to `head`."""
        name, row, replaces = self.table.name, self._reader.row, self.table.replaces
        width = len(self.table.key)
        for values in db.execute(self._query, (after, head, self.table.id)):
            key: tuple[Stored, ...] = values[1 : width + 1]
            if None in key:
                refuse_null_keys(db, self.table)
                continue
            if values[width + 1] is None:
                yield Delete(name, self._reader.key(key))
                continue
            try:
                present = row(values[width + 2 :])
            except ValueMisfit as error:
                yield self._reader.bad_row(key, error)
                continue
            yield Insert(name, present) if values[0] == INSERTED or replaces else Update(name, present)


def refuse_null_keys(db: sqlite3.Connection, table: TableDef) -> None:
    """Raise if the table has a row with a null key, which no consumer can address.

    SQLite allows nulls in most primary keys. A null key was recorded for a row that may be deleted by now; such a row
    was never sent, so nothing is wrong then.
    """
    missing = " OR ".join(f"{quoted(name)} IS NULL" for name in table.key)
    if db.execute(f"SELECT 1 FROM {quoted(table.name)} WHERE {missing} LIMIT 1").fetchone():
        raise AdapterError(
            "null-key",
            f"table {table.name} has a row whose key ({', '.join(table.key)}) is null",
            where=f"table {table.name}",
            fix="give the row a key, declare the key NOT NULL, or exclude the table",
        )


def touched_query(table: TableDef) -> str:
    """Selects for each key of a batch: the first operation, the recorded key, whether its row exists, and the row.

    The comparison with the key's own collation lets SQLite use the index; the binary one excludes a row whose key is
    only equal under that collation.
    """
    keys = key_columns(len(table.key))
    recorded = ", ".join(f"c.{key}" for key in keys)
    pairs = zip(map(quoted, table.key), keys, strict=True)
    same = " AND ".join(f"t.{name} = c.{key} AND t.{name} = c.{key} COLLATE BINARY" for name, key in pairs)
    columns = ", ".join(f"t.{quoted(name)}" for name in table.column_names)
    return (
        f"SELECT c.op, {recorded}, t.{quoted(table.key[0])}, {columns} "
        f"FROM (SELECT {', '.join(keys)}, op, min(seq) FROM {CHANGES} "
        f"WHERE seq > ? AND seq <= ? AND tbl = ? GROUP BY {', '.join(keys)}) c "
        f"LEFT JOIN {quoted(table.name)} t ON {same}"
    )
