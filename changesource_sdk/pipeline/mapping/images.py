"""The rows before and after a change, for SQL expressions that Spark evaluates outside the mapper.

`images` returns the whole rows that a change contains. `with_slots` adds the results of the expressions to the rows of
the change, under the names of `sql_slot`, where `mapping.row` reads them. A row with missing columns has no image: if
an expression needs it, `mapping.row` raises an error with the expression's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from changesource_sdk.adapter import Change, Delete, Insert, Row, Update
from changesource_sdk.pipeline.mapping.row import RowMapper

Image = Literal["before", "after"]


def images(mapper: RowMapper, change: Insert | Update | Delete) -> dict[Image, Row]:
    """The whole rows, before and after, that a change of the mapper's table contains."""
    match change:
        case Insert(_, row):
            return {"after": mapper.filled(row)}
        case Update(_, row, old_key):
            if old_key is not None and mapper.is_whole(old_key):
                return {"before": old_key, "after": {**old_key, **row}}
            return {"after": row} if mapper.is_whole(row) else {}
        case Delete(_, key):
            return {"before": key} if mapper.is_whole(key) else {}


def with_slots(change: Change, slots: Mapping[Image, Row]) -> Change:
    """Return the change with the results of the expressions added to its rows."""
    before, after = slots.get("before", {}), slots.get("after", {})
    match change:
        case Insert(_, row):
            return replace(change, row={**row, **after})
        case Update(_, row, old_key):
            return replace(change, row={**row, **after}, old_key=None if old_key is None else {**old_key, **before})
        case Delete(_, key):
            return replace(change, key={**key, **before})
    return change
