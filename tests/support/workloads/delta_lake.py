"""A Delta table in a folder, written to as an application would, through `deltalake`."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

FEED = {"delta.enableChangeDataFeed": "true"}


def people(*rows: tuple[int, str | None]) -> pa.Table:
    """Rows of a table with an id and a name."""
    ids, names = [row[0] for row in rows], [row[1] for row in rows]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())})


class Lake:
    """One Delta table."""

    def __init__(
        self, path: Path, rows: pa.Table, configuration: Mapping[str, str] | None = FEED, **options: Any
    ) -> None:
        self.path = path
        write_deltalake(str(path), rows, configuration=dict(configuration or {}), **options)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.path))

    def append(self, rows: pa.Table, **options: Any) -> None:
        write_deltalake(str(self.path), rows, mode="append", **options)

    def overwrite(self, rows: pa.Table, **options: Any) -> None:
        write_deltalake(str(self.path), rows, mode="overwrite", **options)

    def update(self, where: str, **values: str) -> None:
        self.table.update(updates=values, predicate=where)

    def delete(self, where: str) -> None:
        self.table.delete(where)

    def merge(self, rows: pa.Table) -> None:
        merger = self.table.merge(rows, "now.id = new.id", source_alias="new", target_alias="now")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def vacuum(self) -> None:
        self.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def drop(self) -> None:
        shutil.rmtree(self.path)

    def rows(self) -> list[dict[str, object]]:
        """What the table holds, ordered by id."""
        found = pa.RecordBatchReader.from_stream(self.table.scan()).read_all().to_pylist()
        return sorted(found, key=lambda row: repr((row["id"],)))

    def clean_log(self, before: int) -> None:
        """What cleaning up leaves: a checkpoint, and no commits before a version."""
        self.table.create_checkpoint()
        for number in range(before):
            (self.path / "_delta_log" / f"{number:020}.json").unlink()

    def commit(self, *actions: Mapping[str, object]) -> None:
        """Write a commit by hand, for what `deltalake` cannot do itself."""
        number = self.table.version() + 1
        info = {"commitInfo": {"timestamp": int(time.time() * 1000), "operation": "MANUAL"}}
        lines = [json.dumps(action) for action in (*actions, info)]
        (self.path / "_delta_log" / f"{number:020}.json").write_text("\n".join(lines) + "\n")

    def ask_for(self, *features: str) -> None:
        """Ask readers and writers for features."""
        names = {"readerFeatures": [*features], "writerFeatures": [*features, "changeDataFeed"]}
        self.commit({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **names}})

    def mapped_columns(self, names: Sequence[str], physical: Sequence[str]) -> None:
        """Switch column mapping on, or rename: columns of these names, stored under the physical ones."""
        schema = json.loads(self.table.schema().to_json())
        kinds = {
            field["metadata"].get("delta.columnMapping.physicalName", field["name"]): field
            for field in schema["fields"]
        }
        fields = [
            {
                **kinds[stored],
                "name": name,
                "metadata": {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": stored},
            }
            for number, (name, stored) in enumerate(zip(names, physical, strict=True), start=1)
        ]
        found = self.table.metadata()
        metadata = {
            "id": str(found.id),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [],
            "configuration": {
                **found.configuration,
                "delta.columnMapping.mode": "name",
                "delta.columnMapping.maxColumnId": str(len(fields)),
            },
        }
        self.commit({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": metadata})
