"""Random rows for the tables of a lakehouse, and rows read from them, in one order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pyarrow as pa

Row = tuple[object, ...]
Operation = Callable[[random.Random], None]
Chain = Sequence[Operation]
"""Operations that only make sense one after the other."""

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
NAMES = (None, "", "plain", "Ünïcödé 漢字 🜚", 'it\'s "quoted"', "x" * 2000)
KEYS = range(40)


def some_rows(rng: random.Random, keys: Sequence[int]) -> pa.Table:
    """Random rows with these keys."""
    names = [rng.choice(NAMES) for _ in keys]
    amounts = [rng.choice((None, 0.0, -1.5, rng.randrange(1000) / 8)) for _ in keys]
    return pa.table([pa.array(keys, pa.int64()), pa.array(names, pa.string()), pa.array(amounts)], schema=SCHEMA)


def some_keys(rng: random.Random) -> list[int]:
    """A few of the keys."""
    return rng.sample(KEYS, k=rng.randrange(1, 8))


def free_keys(taken: Sequence[Row], count: int) -> list[int]:
    """Keys that no row has."""
    known = {row[0] for row in taken}
    return [key for key in range(2 * len(KEYS)) if key not in known][:count]


def in_order(table: pa.Table) -> list[Row]:
    """The rows by their key."""
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=lambda row: repr(row[0]).zfill(8))
