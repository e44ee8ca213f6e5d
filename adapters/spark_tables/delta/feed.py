"""The change feed of one version of a Delta table, as changes.

The feed gives rows in no order, each as it was (`delete`, `update_preimage`) or as it is (`insert`,
`update_postimage`). What belongs together shares a key: a row that was and is becomes an update that carries the whole
row before, one that only was a delete, one that only is an insert. A change of the key is a delete and an insert.
Rows that were only moved, as by an overwrite with the same values or a restore, cancel out.

Versions of many rows are not held in memory: their deletes come first, then their inserts, which is the same to a
consumer. Keys that are none, null or twice among the rows that are, make a feed unusable: what the table holds now must
decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from adapters.spark_tables.rows.shape import Shape
from adapters.spark_tables.rows.values import ArrowRowReader
from changesource_sdk import Change, Delete, Insert, Row, Update

CHANGE_TYPE = "_change_type"
BEFORE = ("delete", "update_preimage")
AFTER = ("insert", "update_postimage")
MOST_HELD = 50_000
"""More rows than this in one version are passed on without being paired."""

Key: TypeAlias = tuple[object, ...]
OpenFeed: TypeAlias = Callable[[str | None], Iterable[pa.RecordBatch]]
"""Reads the version's feed, all of it or the rows for which a predicate holds; can be called repeatedly."""


class UnusableFeed(Exception):
    """The feed has rows with null or repeated keys."""


def feed_changes(shape: Shape, open_feed: OpenFeed, *, rewritten: bool = False) -> Iterable[Change]:
    """The changes of one version. With `rewritten`, rows that look the same are sent, too."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in open_feed(None):
        rows += batch.num_rows
        if rows > MOST_HELD:
            _check_keys(shape, open_feed)
            return _unpaired(shape, open_feed)
        held.append(batch)
    return list(_paired(shape, held, rewritten))


def _paired(shape: Shape, batches: Iterable[pa.RecordBatch], rewritten: bool) -> Iterator[Change]:
    name, reader = shape.table.full_name, ArrowRowReader(shape.fields)
    before: dict[Key, Row] = {}
    after: dict[Key, Row] = {}
    for batch in batches:
        for kind, row in zip(batch.column(CHANGE_TYPE).to_pylist(), reader.rows(batch), strict=True):
            key = _key(shape.key, row)
            if None in key or (kind in AFTER and key in after):
                raise UnusableFeed("a key is null" if None in key else "two rows have one key")
            (after if kind in AFTER else before)[key] = row
    for key, row in before.items():
        if key not in after:
            yield Delete(name, row)
    for key, row in after.items():
        was = before.get(key)
        if was is None:
            yield Insert(name, row)
        elif rewritten or was != row:
            yield Update(name, row, was)


def _check_keys(shape: Shape, open_feed: OpenFeed) -> None:
    """The same check for a version that is too large to be held: only its keys are."""
    names = [f"k{index}" for index in range(len(shape.key))]
    tables = [
        pa.table([stored(batch.column(name)) for name in shape.key], names) for batch in open_feed(_is_one_of(AFTER))
    ]
    keys = pa.concat_tables(tables) if tables else pa.table({})
    if any(column.null_count for column in keys.columns):
        raise UnusableFeed("a key is null")
    if tables and keys.group_by(names).aggregate([]).num_rows != keys.num_rows:
        raise UnusableFeed("two rows have one key")


def stored(column: pa.Array) -> pa.Array:
    """A column in a type that files and comparisons know: the feed's texts are views."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_binary_view(column.type) else column


def _unpaired(shape: Shape, open_feed: OpenFeed) -> Iterator[Change]:
    name, reader = shape.table.full_name, ArrowRowReader(shape.fields)
    for batch in open_feed(_is_one_of(BEFORE)):
        yield from (Delete(name, row) for row in reader.rows(batch))
    for batch in open_feed(_is_one_of(AFTER)):
        yield from (Insert(name, row) for row in reader.rows(batch))


def _is_one_of(kinds: Sequence[str]) -> str:
    return f"{CHANGE_TYPE} IN ({', '.join(repr(kind) for kind in kinds)})"


def _key(names: Sequence[str], row: Mapping[str, object]) -> Key:
    return tuple(row[name] for name in names)
