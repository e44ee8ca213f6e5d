"""The position of the adapter: the position of each table, in the order of the settings.

A table's own position is a JSON value that its source defines (`source.TablePosition`): `DeltaPosition` for a Delta
table that is followed by its feed, a number and a shape for a table that is compared (`difference.source`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import TablePosition
from changesource_sdk import Position, ResyncRequired, position_lost


def lost(reason: str, where: str = "") -> ResyncRequired:
    """The error that makes the pipeline take a new snapshot."""
    return position_lost(reason, where, "nothing to do: the tables are read again, and consumers are reset")


@dataclass(frozen=True, slots=True)
class SparkTablesPosition:
    """The position of each table, by the name of the table."""

    tables: Mapping[str, TablePosition]

    @classmethod
    def from_json(cls, position: Position, settings: Sequence[TableSettings]) -> SparkTablesPosition:
        """Raises `ResyncRequired` if it is not a position of these tables with these keys."""
        stored = position.get("tables") if isinstance(position, dict) else None
        if not isinstance(stored, dict):
            raise lost("the position was not made by this adapter")
        tables: dict[str, TablePosition] = {}
        for table in settings:
            match stored.get(table.name):
                case [str(identity), table_position] if identity == table.identity:
                    tables[table.name] = table_position
                case None:
                    raise lost("the table is new in the settings", table.where)
                case _:
                    raise lost("its source or its key is another one in the settings", table.where)
        if len(stored) > len(settings):
            raise lost(f"{', '.join(sorted(stored.keys() - tables.keys()))} is no longer in the settings")
        return cls(tables)

    def to_json(self, settings: Sequence[TableSettings]) -> Position:
        """The position as the log stores it."""
        return {"tables": {table.name: [table.identity, self.tables[table.name]] for table in settings}}

    def moved(self, tables: Mapping[str, TablePosition]) -> SparkTablesPosition:
        """With these tables at other positions."""
        return SparkTablesPosition({**self.tables, **tables})


@dataclass(frozen=True, slots=True)
class DeltaPosition:
    """The position in a Delta table that is followed by its feed.

    `id` is the table's own id, `version` the last version that was read, `shape` the name of the columns that consumers
    have, `base` the number of the remembered base.
    """

    id: str
    version: int
    shape: str
    base: int

    @classmethod
    def from_json(cls, position: TablePosition, where: str) -> DeltaPosition:
        """Raises `ResyncRequired` for a position of another source."""
        match position:
            case {"id": str(number), "version": int(version), "shape": str(shape), "base": int(base)}:
                return cls(number, version, shape, base)
        raise lost("the position was not made by this source", where)

    def to_json(self) -> TablePosition:
        """The position as part of the adapter's."""
        return {"id": self.id, "version": self.version, "shape": self.shape, "base": self.base}
