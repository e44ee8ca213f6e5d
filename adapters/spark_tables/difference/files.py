"""The files that differences write: their marks, and what can be counted in them without Spark.

A file has the columns `k0`, `k1`, … of the key, `r0`, `r1`, … of the row, a hash and a digest; that of a delta says
first what happened to the row.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc
import pyarrow.dataset as ds

from adapters.spark_tables.difference.state import StateFolder

INSERT, UPDATE, DELETE = 1, 2, 3
OPERATION, HASH, DIGEST = "operation", "hash", "digest"


def open_files(folder: StateFolder, name: str) -> ds.Dataset | None:
    """The files of a folder together; None if it has none."""
    files = folder.parquet_files(name)
    return ds.dataset(files, filesystem=folder.files, format="parquet") if files else None


def count_rows(folder: StateFolder, name: str) -> int:
    """Rows, from what the files say of themselves."""
    dataset = open_files(folder, name)
    return 0 if dataset is None else int(dataset.count_rows())


def count_operations(folder: StateFolder, delta: str) -> tuple[int, int, int]:
    """Inserts, updates and deletes."""
    counts = dict.fromkeys((INSERT, UPDATE, DELETE), 0)
    dataset = open_files(folder, delta)
    for batch in () if dataset is None else dataset.to_batches(columns=[OPERATION]):
        for entry in pc.value_counts(batch.column(OPERATION)).to_pylist():
            counts[entry["values"]] += entry["counts"]
    return counts[INSERT], counts[UPDATE], counts[DELETE]


def count_distinct(folder: StateFolder, delta: str, keys: Sequence[str]) -> int:
    """How many keys the inserts of a small delta have."""
    dataset = open_files(folder, delta)
    if dataset is None:
        return 0
    inserted = dataset.to_table(columns=list(keys), filter=pc.field(OPERATION) == INSERT)
    return int(inserted.group_by(list(keys)).aggregate([]).num_rows)
