"""Tuples of one table to rows and keys, by the announced layout and the definition that consumers have. Pure."""

from __future__ import annotations

from adapters.postgres.catalog.model import TableDef
from adapters.postgres.replication.pgoutput import UNCHANGED, Deleted, Inserted, RelationMessage, Updated, Values
from adapters.postgres.types import Types, decoder
from changesource_sdk import AdapterError, Change, Delete, Insert, Row, Update


def fits(relation: RelationMessage, table: TableDef) -> bool:
    """Whether the layout of the stream matches the definition. If not, one of them is newer than the other."""
    announced = {column.name: (column.type_oid, column.modifier) for column in relation.columns}
    defined = {column.name: (column.type_oid, column.typmod) for column in table.columns}
    if (relation.schema, relation.name) != (table.schema, table.name):
        return False
    others = announced.keys() - defined.keys()
    return defined.items() <= announced.items() and others <= set(table.unsynced)


class RelationReader:
    """Reads tuples of one layout, under a definition that matches it."""

    def __init__(self, relation: RelationMessage, table: TableDef, types: Types) -> None:
        indexes = {column.name: index for index, column in enumerate(relation.columns)}
        self._name = table.full_name
        self._table = table
        self._columns = [(indexes[c.name], c.name, decoder(c.type_oid, types)) for c in table.columns]
        self._key = [column for column in self._columns if column[1] in table.key]

    def inserted(self, message: Inserted) -> Change:
        return Insert(self._name, self._row(message.new))

    def updated(self, message: Updated) -> Change:
        """The update without the columns that the server did not send, which are unchanged."""
        row = self._row(message.new)
        if message.old is None:
            return Update(self._name, row)
        old_key = self._old_key(message.old)
        # An unchanged TOAST value that is part of the key is sent in the old key only.
        row = row if old_key.keys() <= row.keys() else {**old_key, **row}
        is_same = all(row[name] == value for name, value in old_key.items())
        return Update(self._name, row, None if is_same else old_key)

    def deleted(self, message: Deleted) -> Change:
        return Delete(self._name, self._old_key(message.old))

    def _row(self, values: Values) -> Row:
        if UNCHANGED in values:
            return {
                name: None if value is None else decode(value)
                for index, name, decode in self._columns
                if (value := values[index]) is not UNCHANGED
            }
        return {
            name: None if (value := values[index]) is None else decode(value)  # type: ignore[arg-type]
            for index, name, decode in self._columns
        }

    def _old_key(self, values: Values) -> Row:
        key: dict[str, object] = {}
        for index, name, decode in self._key:
            value = values[index]
            if not isinstance(value, str):
                raise AdapterError(
                    "old-key-missing",
                    f"an update or delete came without its old {name}",
                    where=f"table {self._name}",
                    fix="set the table's REPLICA IDENTITY to an index on its key, or to FULL",
                )
            key[name] = decode(value)
        return key
