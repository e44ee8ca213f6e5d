"""The checks of `changesource doctor` for one table, before the first sync.

Spark checks all keys and reads all values, as the first sync will. So a line of text that does not fit its columns, or
a query that divides by zero, is reported beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from adapters.spark_tables.readers.contract import reading
from adapters.spark_tables.rows.keys import bad_keys
from adapters.spark_tables.rows.row_hash import Value, quoted, row_hash
from adapters.spark_tables.rows.shape import Shape
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.types import unsynced_reason
from changesource_sdk import ChangesourceError, Check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def table_checks(
    table: TableSettings, shape: Callable[[], Shape], frame: Callable[[], DataFrame], more: Iterable[Check] = ()
) -> Iterator[Check]:
    """The checks of one table; ends with the first that fails, since the others depend on it."""
    name = f"table {table.name}"
    try:
        current = shape()
        columns = current.table.columns
        yield Check(name, True, f"{table.kind} table with {len(columns)} columns, key {', '.join(table.key)}")
        yield from more
        yield from type_checks(name, current)
        with reading(table):
            rows = frame()
            bad = bad_keys(rows, table.key)
            read = count_readable(rows)
    except ChangesourceError as error:
        yield Check(name, False, error.message, error.fix or "see the message")
        return
    if bad:
        found_bad = bad.error(table.name, table.key)
        yield Check(name, False, found_bad.message, found_bad.fix)
    else:
        yield Check(name, True, f"{read} rows can be read, and every one has its own key")


def count_readable(frame: DataFrame) -> int:
    """Read every value of every row, which fails for one that cannot be read; how many rows there are."""
    from pyspark.sql import functions as f

    values = [Value(field.name, quoted(field.name), field.dataType) for field in frame.schema]
    (counts,) = frame.select(row_hash(values).alias("hash")).agg(f.count("hash"), f.max("hash")).collect()
    return int(counts[0])


def type_checks(name: str, shape: Shape) -> Iterator[Check]:
    """Columns that clients do not get: reported, but not as failures."""
    for field in shape.struct.fields:
        match unsynced_reason(field.dataType):
            case "not-synced":
                what = "is replicated but not synced to clients"
            case "no-value":
                what = "is left out: the type has no counterpart"
            case _:
                continue
        yield Check(name, True, f"column {field.name} ({field.dataType.simpleString()}) {what}")
