"""Rows of 8 columns, made by the column, for tables of any size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BATCH = 250_000


def rows(first: int, count: int, turn: int = 0) -> pa.Table:
    """Rows with the keys from `first` on; another `turn` gives the same keys other values."""
    ids = pa.array(np.arange(first, first + count, dtype=np.int64))
    texts = ids.cast(pa.string())
    return pa.table(
        {
            "id": ids,
            "title": pc.binary_join_element_wise("title", texts, " "),
            "body": pc.binary_join_element_wise("x" * 60, texts, str(turn), "-"),
            "owner": pc.binary_join_element_wise("u", pa.array(np.arange(count) % 100).cast(pa.string()), ""),
            "open": pa.array(np.arange(count) % 2 == 0),
            "score": pa.array(np.arange(count) * 1.5 + turn),
            "votes": pa.array(np.arange(count, dtype=np.int32) * 7 % 1000),
            "created": pa.array((np.arange(count) + 1_700_000_000) * 1_000_000).cast(pa.timestamp("us", "UTC")),
        }
    )


def batches(count: int) -> Iterator[pa.Table]:
    """So many rows, some at a time."""
    for first in range(0, count, BATCH):
        yield rows(first, min(BATCH, count - first))
