"""A table's columns at one version, and what takes consumers from one shape to another. Pure.

A shape is Spark's schema (Delta's is written the same way) and the key. Columns are identified by the ids of Delta's
column mapping, otherwise by their names: with column mapping a rename is a rename, without it a drop and an add.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql.types import StructField, StructType

from adapters.spark_tables.types import column_of, unsynced_reason
from changesource_sdk import Change, Column, ConfigurationError, Table
from changesource_sdk.toolkit import KnownTable, has_altered_kind, nearest, schema_diff

IDENTITY = "delta.columnMapping.physicalName"


@dataclass(frozen=True)
class Shape:
    """A table's name for consumers, its columns and its key. Invariant: the key's columns are there and can be keys."""

    name: str
    struct: StructType
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.key:
            if name not in self.struct.fieldNames():
                hint = nearest(name, self.struct.fieldNames())
                raise ConfigurationError("bad-key", f"there is no column {name!r}", self._key_setting, hint)
            if self._column(name).zql_type in (None, "json"):
                kind = self.struct[name].dataType.simpleString()
                fix = "choose columns of numbers, texts, booleans, dates or times, or cast it in a query"
                raise ConfigurationError("bad-key", f"a column of type {kind} cannot be a key", self._key_setting, fix)

    @property
    def _key_setting(self) -> str:
        return f"tables.{self.name}.key"

    def _column(self, name: str) -> Column:
        return column_of(self.struct[name])

    @cached_property
    def fields(self) -> tuple[StructField, ...]:
        """The fields that travel."""
        return tuple(field for field in self.struct.fields if unsynced_reason(field.dataType) != "no-value")

    @cached_property
    def table(self) -> Table:
        """The table as it is declared to consumers."""
        return Table(self.name, [column_of(field) for field in self.fields], key=self.key)

    @property
    def identities(self) -> tuple[str, ...]:
        """What the columns that travel are known by."""
        return tuple(str((field.metadata or {}).get(IDENTITY, field.name)) for field in self.fields)

    def by_name(self) -> Shape:
        """The same columns without the identities that the table gave them: to another table they mean nothing."""
        plain = [StructField(field.name, field.dataType, field.nullable) for field in self.struct.fields]
        return Shape(self.name, StructType(plain), self.key)

    def to_json(self) -> str:
        """The shape as text; equal shapes have equal texts."""
        return json.dumps(
            {"name": self.name, "key": list(self.key), "columns": self.struct.jsonValue()}, sort_keys=True
        )

    @classmethod
    def from_json(cls, text: str) -> Shape:
        """The shape that `to_json` wrote."""
        fields = json.loads(text)
        return cls(fields["name"], StructType.fromJson(fields["columns"]), tuple(fields["key"]))


@dataclass(frozen=True, slots=True)
class Evolution:
    """Schema changes in order. `rewritten`: consumers' rows do not follow from them, all rows must be sent again;
    `emptied`: consumers begin with an empty table.
    """

    changes: Sequence[Change] = ()
    rewritten: bool = False
    emptied: bool = False


def evolution(old: Shape, new: Shape) -> Evolution:
    """What leads consumers from one shape to another."""
    if old == new or (old.table == new.table and old.identities == new.identities):
        return Evolution()
    ids: dict[str, int] = {}
    known = [
        KnownTable(1, shape.table, tuple(ids.setdefault(name, len(ids)) for name in shape.identities))
        for shape in (old, new)
    ]
    diff = schema_diff(known[:1], known[1:], lambda table, column: None)
    return Evolution(diff.changes, has_altered_kind(*known) or bool(diff.created), bool(diff.created))
