"""What stands in the way of syncing a table, for `changesource doctor`: looked up before the first sync.

Each finding is about one table and names what to do. Spark looks at all keys and reads all values, as the first sync
will: a line of text that does not fit its columns, or a query that divides by zero, is told before.
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
    table: TableSettings, shape: Callable[[], Shape], frame: Callable[[], DataFrame], told: Iterable[Check] = ()
) -> Iterator[Check]:
    """The findings about one table; the first that fails is the last, since the others need it."""
    name = f"table {table.name}"
    try:
        found = shape()
        columns = found.table.columns
        yield Check(name, True, f"{table.kind} table with {len(columns)} columns, key {', '.join(table.key)}")
        yield from told
        yield from type_checks(name, found)
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
    (found,) = frame.select(row_hash(values).alias("hash")).agg(f.count("hash"), f.max("hash")).collect()
    return int(found[0])


def type_checks(name: str, shape: Shape) -> Iterator[Check]:
    """Columns that clients will not see. They harm nothing, so they are told and not failed."""
    for field in shape.struct.fields:
        match unsynced_reason(field.dataType):
            case "not-synced":
                told = "is replicated but not synced to clients"
            case "no-value":
                told = "is left out: the type has no counterpart"
            case _:
                continue
        yield Check(name, True, f"column {field.name} ({field.dataType.simpleString()}) {told}")
