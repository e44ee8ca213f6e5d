"""What Python and SQLite can do at most: the same rows by `executemany` into an empty table, then the indexes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.seed.layout import create_index, create_table
from changesource_sdk.seed.pieces import insert_statement, scratch_database
from changesource_sdk.seed.rows import Parameters, RowDecoder


def measure(state: Path, target: Path) -> dict[str, Any]:
    """Insert the rows of the newest snapshot. Decoding them is not counted."""
    with closing(SqliteLogStore(state).open_log()) as log:
        record = log.snapshots()[-1]
    schema = ConsumerSchema.from_json(record.schema)
    (table,) = schema.tables.values()
    rows, inserting = 0, 0.0
    with closing(scratch_database(target)) as connection:
        connection.execute(create_table(table))
        insert = insert_statement(table, table.full_name, "01")
        for batch in _batches(record.directory, RowDecoder(table)):
            begun = time.perf_counter()
            connection.executemany(insert, batch)
            inserting += time.perf_counter() - begun
            rows += len(batch)
        begun = time.perf_counter()
        connection.execute("COMMIT")
        inserting += time.perf_counter() - begun
        begun = time.perf_counter()
        for index in schema.indexes.values():
            connection.execute(create_index(index))
        indexing = time.perf_counter() - begun
    size = target.stat().st_size
    target.unlink()
    return {
        "rows": rows,
        "bytes": size,
        "insertSeconds": round(inserting, 2),
        "indexSeconds": round(indexing, 2),
        "rowsPerSecond": round(rows / (inserting + indexing)),
    }


def _batches(directory: Path, decoder: RowDecoder) -> Iterator[list[Parameters]]:
    for part in snapshots.read_manifest(directory).parts:
        if part.table:
            for block in BlockFile(directory / part.file, part.bytes, part.crc32).blocks():
                yield decoder.block(block)
