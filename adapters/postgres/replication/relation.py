"""One table's tuples to rows and keys, by the layout the stream announced and the definition consumers have. Pure."""

from __future__ import annotations

from adapters.postgres.catalog.model import TableDef
from adapters.postgres.replication.pgoutput import UNCHANGED, Deleted, Inserted, Relation, Updated, Values
from adapters.postgres.types import Types, decoder
from changesource_sdk import AdapterError, Change, Delete, Insert, Row, Update


def fits(relation: Relation, table: TableDef) -> bool:
    """Whether the layout is that of the definition: else one of them is ahead of the other."""
    announced = {column.name: (column.type_oid, column.modifier) for column in relation.columns}
    defined = {column.name: (column.type_oid, column.typmod) for column in table.columns}
    if (relation.schema, relation.name) != (table.schema, table.name):
        return False
    others = announced.keys() - defined.keys()
    return defined.items() <= announced.items() and others <= set(table.unsynced)


class RelationReader:
    """Reads tuples of one layout under one definition that fits it."""

    def __init__(self, relation: Relation, table: TableDef, types: Types) -> None:
        places = {column.name: place for place, column in enumerate(relation.columns)}
        self._name = table.full_name
        self._table = table
        self._columns = [(places[c.name], c.name, decoder(c.type_oid, types)) for c in table.columns]
        self._key = [column for column in self._columns if column[1] in table.key]

    def inserted(self, message: Inserted) -> Change:
        """The change of a new row."""
        return Insert(self._name, self._row(message.new))

    def updated(self, message: Updated) -> Change:
        """The change of an updated row; values that were not sent keep what they are."""
        row = self._row(message.new)
        if message.old is None:
            return Update(self._name, row)
        old_key = self._old_key(message.old)
        # A large key that did not change is sent with the old key only.
        row = row if old_key.keys() <= row.keys() else {**old_key, **row}
        is_same = all(row[name] == value for name, value in old_key.items())
        return Update(self._name, row, None if is_same else old_key)

    def deleted(self, message: Deleted) -> Change:
        """The change of a row that is gone."""
        return Delete(self._name, self._old_key(message.old))

    def _row(self, values: Values) -> Row:
        if UNCHANGED in values:
            return {
                name: None if value is None else decode(value)
                for place, name, decode in self._columns
                if (value := values[place]) is not UNCHANGED
            }
        return {
            name: None if (value := values[place]) is None else decode(value)  # type: ignore[arg-type]
            for place, name, decode in self._columns
        }

    def _old_key(self, values: Values) -> Row:
        found: dict[str, object] = {}
        for place, name, decode in self._key:
            value = values[place]
            if not isinstance(value, str):
                raise AdapterError(
                    "old-key-missing",
                    f"an update or delete came without its old {name}",
                    where=f"table {self._name}",
                    fix="set the table's REPLICA IDENTITY to an index on its key, or to FULL",
                )
            found[name] = decode(value)
        return found
