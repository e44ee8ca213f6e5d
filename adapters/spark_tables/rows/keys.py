"""Keys that are none: null or used twice, counted and shown, before they can do harm.

A consumer would keep one row of many for a key that is used twice, whichever came last. So a table is checked before
its first sync and at each difference, and refused with what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.spark_tables.rows.row_hash import quoted
from changesource_sdk import AdapterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

EXAMPLES = 3
SHOWN_COLUMNS = 5
_TIMES = "_changesource_times"
_LONGEST_EXAMPLE = 40


class UnusableKeys(AdapterError):
    """Several rows of a table share a key, or a key is null. Only another version of the table can mend that."""


@dataclass(frozen=True, slots=True)
class BadKeys:
    """How many rows have a null in their key and one of these rows; how many keys are used more than once, and some."""

    nulls: int
    repeated: int
    examples: tuple[str, ...] = ()
    null_example: str = ""

    def __bool__(self) -> bool:
        return bool(self.nulls or self.repeated)

    def error(self, table: str, key: Sequence[str]) -> UnusableKeys:
        """The error for the user."""
        named = ", ".join(key)
        said = []
        if self.nulls:
            rows = "1 row has" if self.nulls == 1 else f"{self.nulls} rows have"
            said.append(f"{rows} a null in the key ({named}), such as {self.null_example}")
        if self.repeated:
            times = "1 key is" if self.repeated == 1 else f"{self.repeated} keys are"
            said.append(f"{times} used more than once ({named}), such as {', '.join(self.examples)}")
        code = "null-keys" if self.nulls else "duplicate-keys"
        fix = "choose key columns that are unique and never null, or remove the rows; sync then continues by itself"
        return UnusableKeys(code, "; ".join(said), f"table {table}", fix)


def bad_keys(frame: DataFrame, key: Sequence[str]) -> BadKeys:
    """Check every key of a table."""
    from functools import reduce

    from pyspark.sql import functions as f

    columns = [quoted(name) for name in key]
    is_null = reduce(lambda one, other: one | other, (column.isNull() for column in columns))
    counted = frame.where(~is_null).groupBy(*columns).agg(f.count(f.lit(1)).alias(_TIMES)).where(f.col(_TIMES) > 1)
    worst = counted.orderBy(f.col(_TIMES).desc(), *columns).limit(EXAMPLES).collect()
    repeated = counted.count() if len(worst) == EXAMPLES else len(worst)
    without_key = frame.where(is_null)
    nulls = without_key.count()
    null_example = _row_example(without_key.limit(1).collect()) if nulls else ""
    return BadKeys(nulls, repeated, tuple(_example(row, len(key)) for row in worst), null_example)


def _row_example(rows: Sequence[Row]) -> str:
    """The first columns of a row with a null key, which only its other columns identify."""
    values = rows[0].asDict() if rows else {}
    shown = [f"{name}: {_short(value)}" for name, value in list(values.items())[:SHOWN_COLUMNS]]
    return f"{{{', '.join(shown)}{', …' if len(values) > SHOWN_COLUMNS else ''}}}"


def _example(row: Row, width: int) -> str:
    values = [_short(value) for value in row[:width]]
    shown = values[0] if width == 1 else f"({', '.join(values)})"
    return f"{shown} ({row[width]} times)"


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST_EXAMPLE else text[: _LONGEST_EXAMPLE - 1] + "…"
