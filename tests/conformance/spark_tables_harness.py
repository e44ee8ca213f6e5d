"""The Spark tables adapter under the suite: a Delta table with a change feed, each commit one version of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from adapters.spark_tables import SparkTablesAdapter
from changesource_sdk.adapter import AddColumn, AlterColumn, Change, Delete, DropColumn, Insert, Row, Truncate, Update
from changesource_sdk.testing.conformance import Harness

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("title", pa.string()),
        ("amount", pa.int32()),
        ("rate", pa.float64()),
        ("price", pa.decimal128(18, 4)),
        ("is_open", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
    ]
)
FEED = {"delta.enableChangeDataFeed": "true"}
PRIMITIVES = {"text": "string", "int8": "long", "float8": "double", "bool": "boolean"}
ARROW = {"text": pa.string(), "int8": pa.int64()}
GONE = "_gone"


class DeltaHarness(Harness):
    adapter = SparkTablesAdapter
    lacks = ("create table",)
    supports = ("truncate", "change type", "rename column")
    patience = 60.0

    def create(self, folder: Path) -> None:
        self.path = str(folder / "item")
        self.state = str(folder / "remembered")
        write_deltalake(self.path, SCHEMA.empty_table(), configuration=FEED)

    def settings(self) -> Mapping[str, object]:
        return {"tables": {"item": {"delta": self.path, "key": "id", "poll": 0.05}}, "state": self.state}

    def commit(self, changes: Sequence[Change]) -> None:
        match changes:
            case [AddColumn(_, column)]:
                self._table.alter.add_columns([Field(column.name, PrimitiveType(PRIMITIVES[column.data_type]))])
            case [DropColumn(_, name)]:
                self._overwrite(self._rows().drop_columns([name]))
            case [AlterColumn(_, old, column)]:
                rows = self._rows()
                values = rows.column(old).cast(ARROW[column.data_type])
                self._overwrite(rows.set_column(rows.column_names.index(old), column.name, values))
            case [Truncate()]:
                self._table.delete()
            case _:
                self._merge(self._outcome(changes))

    def forget(self) -> None:
        """What cleaning up leaves: the files of the newest version, a checkpoint, and no earlier commits."""
        self._table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        newest = self._table
        newest.create_checkpoint()
        for number in range(newest.version()):
            (Path(self.path) / "_delta_log" / f"{number:020}.json").unlink(missing_ok=True)

    def _rows(self) -> pa.Table:
        return self._table.to_pyarrow_table()

    def _overwrite(self, rows: pa.Table) -> None:
        """What Delta cannot alter is written again, as another schema."""
        write_deltalake(self.path, rows, mode="overwrite", schema_mode="overwrite")

    @property
    def _table(self) -> DeltaTable:
        return DeltaTable(self.path)

    def _outcome(self, changes: Sequence[Change]) -> dict[object, Row | None]:
        """What becomes of each key that the changes touch; None if its row is gone."""
        rows = {row["id"]: row for row in self._table.to_pyarrow_table().to_pylist()}
        found: dict[object, Row | None] = {}
        for change in changes:
            match change:
                case Insert(_, row):
                    found[row["id"]] = row
                case Update(_, row, old_key):
                    old = row["id"] if old_key is None else old_key["id"]
                    before = found.get(old, rows.get(old)) or {}
                    found[old] = None
                    found[row["id"]] = {**before, **row}
                case Delete(_, key):
                    found[key["id"]] = None
                case _:
                    raise NotImplementedError(type(change).__name__)
        return found

    def _merge(self, outcome: Mapping[object, Row | None]) -> None:
        """All of it as one version."""
        schema = pa.schema(self._table.schema().to_arrow())
        rows = [{"id": key, **(row or {}), GONE: row is None} for key, row in outcome.items()]
        source = pa.Table.from_pylist(rows, schema.append(pa.field(GONE, pa.bool_())))
        merger = self._table.merge(source, "new.id = now.id", source_alias="new", target_alias="now")
        values = {f"`{name}`": f"new.`{name}`" for name in schema.names}
        merger = merger.when_matched_delete(f"new.{GONE}").when_matched_update(values, f"NOT new.{GONE}")
        merger.when_not_matched_insert(values, f"NOT new.{GONE}").execute()
