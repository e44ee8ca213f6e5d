"""The schema a consumer has at one point of the stream.

Each schema change of the pipeline gives the next one. The log keeps it (as JSON) with its head, so that a restart
continues with exactly what consumers have: tables without defaults, and every index by the name it was created with,
key indexes included. Applying assumes a checked change (`pipeline.encoding.validate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

import orjson

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    CreateIndex,
    CreateTable,
    DropColumn,
    DropIndex,
    DropTable,
    RenameTable,
    SchemaChange,
)
from changesource_sdk.column_changes import ColumnChange, altered_table
from changesource_sdk.schema import Column, Direction, Index, Table, canonical_name

T = TypeVar("T")


# Not a fold of `protocol.fold`: it folds an adapter's changes, not those on the wire, and the protocol's rules must
# share no code with the sender that they judge.
@dataclass(frozen=True, slots=True)
class ConsumerSchema:
    """Tables and indexes by the name they have in the replica. Immutable: a transaction that fails leaves its
    predecessor untouched.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    indexes: Mapping[str, Index] = field(default_factory=dict)

    def apply(self, change: SchemaChange) -> ConsumerSchema:
        """The schema after a change."""
        match change:
            case CreateTable(table):
                return self._create(table)
            case DropTable(name):
                return self._drop(canonical_name(name))
            case RenameTable(old, new):
                return self._rename(canonical_name(old), canonical_name(new))
            case AddColumn() | DropColumn() | AlterColumn():
                return self._alter(change)
            case CreateIndex(index):
                return replace(self, indexes={**self.indexes, index.full_name: index})
            case DropIndex(name):
                return replace(self, indexes=_without(self.indexes, canonical_name(name)))

    def _create(self, table: Table) -> ConsumerSchema:
        bare = replace(_without_defaults(table), indexes=())
        indexes = {index.full_name: index for index in self.indexes_for(table)}
        return ConsumerSchema({**self.tables, table.full_name: bare}, {**self.indexes, **indexes})

    def _drop(self, name: str) -> ConsumerSchema:
        indexes = {key: index for key, index in self.indexes.items() if index.table != name}
        return ConsumerSchema(_without(self.tables, name), indexes)

    def _rename(self, old: str, new: str) -> ConsumerSchema:
        table = replace(self.tables[old], name=new, schema="public")
        indexes = {
            name: replace(index, table=new) if index.table == old else index for name, index in self.indexes.items()
        }
        return ConsumerSchema({**_without(self.tables, old), new: table}, indexes)

    def _alter(self, change: ColumnChange) -> ConsumerSchema:
        table = _without_defaults(altered_table(self.tables[canonical_name(change.table)], change))
        indexes = dict(self.indexes)
        if isinstance(change, AlterColumn):
            for name, index in self.indexes.items():
                if index.table == table.full_name:
                    indexes[name] = _renamed_column(index, change.old_name, change.column.name)
        return ConsumerSchema({**self.tables, table.full_name: table}, indexes)

    def indexes_for(self, table: Table) -> list[Index]:
        """The indexes that creating a table here creates: the key's first, under a name that is free.

        A table renamed away keeps its key index's name, so the next table of the old name needs another.
        """
        key = table.key_index
        if key is None:
            return list(table.indexes)
        taken = {name.lower() for name in (*self.tables, *self.indexes, *(i.full_name for i in table.indexes))}
        names = (f"{key.name}{number or ''}" for number in count())
        free = next(name for name in names if replace(key, name=name).full_name.lower() not in taken)
        return [replace(key, name=free), *table.indexes]

    def indexes_on(self, table: str) -> list[Index]:
        """The indexes of a table."""
        return [index for index in self.indexes.values() if index.table == table]

    def declared(self) -> tuple[Table, ...]:
        """The tables as an author declares them: each with its indexes, but for the one that makes its key."""
        return tuple(replace(table, indexes=self._further_indexes(table)) for table in self.tables.values())

    def _further_indexes(self, table: Table) -> list[Index]:
        indexes = self.indexes_on(table.full_name)
        key = next((index for index in indexes if index.unique and tuple(index.directions) == table.key), None)
        return [index for index in indexes if index is not key]

    def to_json(self) -> str:
        """Text that `from_json` reads back."""
        return orjson.dumps(self.as_json()).decode()

    def as_json(self) -> dict[str, object]:
        """JSON values that `of_json` reads back."""
        tables = [_table_json(table) for table in self.tables.values()]
        indexes = [{"at": name, **_index_json(index)} for name, index in self.indexes.items()]
        return {"tables": tables, "indexes": indexes}

    @classmethod
    def from_json(cls, text: str) -> ConsumerSchema:
        """The schema that `to_json` wrote; an empty text is an empty schema."""
        return cls.of_json(orjson.loads(text)) if text else cls()

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> ConsumerSchema:
        """The schema that `as_json` wrote; other names in `content` are ignored."""
        tables = [Table(**{**t, "columns": [Column(**c) for c in t["columns"]]}) for t in content["tables"]]
        indexes = {i["at"]: _index_of(i) for i in content["indexes"]}
        return cls({table.full_name: table for table in tables}, indexes)

    @classmethod
    def of(cls, tables: Iterable[Table]) -> ConsumerSchema:
        """The schema after creating these tables."""
        schema = cls()
        for table in tables:
            schema = schema.apply(CreateTable(table))
        return schema


def without_default(column: Column) -> Column:
    """A column as consumers keep it: the default only matters at the moment the column is added."""
    return replace(column, default=None, default_sql=None)


def _without_defaults(table: Table) -> Table:
    return replace(table, columns=tuple(map(without_default, table.columns)))


def _without(mapping: Mapping[str, T], name: str) -> dict[str, T]:
    return {key: value for key, value in mapping.items() if key != name}


def _renamed_column(index: Index, old: str, new: str) -> Index:
    columns: list[tuple[str, Direction]] = [(new if c == old else c, d) for c, d in index.directions.items()]
    return replace(index, columns=columns)


def _table_json(table: Table) -> dict[str, object]:
    columns = [
        {"name": c.name, "type": c.data_type, "optional": c.optional, "enum": c.enum, "max_length": c.max_length}
        for c in table.columns
    ]
    return {"name": table.name, "schema": table.schema, "key": table.key, "columns": columns}


def _index_of(content: Mapping[str, Any]) -> Index:
    fields = {name: value for name, value in content.items() if name != "at"}
    return Index(**{**fields, "columns": [tuple(column) for column in fields["columns"]]})


def _index_json(index: Index) -> dict[str, object]:
    columns = list(index.directions.items())
    return {"name": index.name, "table": index.table, "unique": index.unique, "columns": columns}
