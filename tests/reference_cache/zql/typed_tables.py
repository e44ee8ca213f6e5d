"""A table with a column of every type, and rows for it."""

from typing import Any

from hypothesis import strategies as st

from reference_cache.zql.schema import TableSchema, table

THING: TableSchema = table(
    "thing", {"id": "string", "s": "string?", "n": "number?", "b": "boolean?", "j": "json?", "m": "number?"}
)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text("aAbé😀", max_size=3),
    "number": st.integers(-3, 3) | st.sampled_from([0.5, -2.0, 1.0]),
    "boolean": st.booleans(),
    "json": st.sampled_from([1, True, "a", 0, False]),
}


def rows() -> st.SearchStrategy[tuple[Any, ...]]:
    """Rows of THING, with nulls where they are allowed."""
    columns = [VALUES[kind.type] | st.none() if kind.optional else VALUES[kind.type] for kind in THING.columns.values()]
    return st.tuples(*columns)
