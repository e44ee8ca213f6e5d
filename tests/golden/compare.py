"""How results and row changes are compared with a corpus: values as JSON, row changes by their net effect."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from protocol.sync.ast import CorrelatedSubquery, Query
from protocol.sync.js_json import stringify
from reference_cache.zql.format import Format
from reference_cache.zql.schema import Row, Schema, TableSchema
from tests.support.zql.recording_engine import RowChange

RowId: TypeAlias = tuple[str, str]
"""A table and a row's key as the corpus writes it, e.g. `["i1"]`."""

Emission: TypeAlias = tuple[str, str, Any]
"""Op, table, and the row by column name; for a remove its key values."""


def same(left: Any, right: Any) -> bool:
    """Equality of JSON values: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def key_text(values: Iterable[Any]) -> str:
    """A row's key as JavaScript writes it: `[1e-7]`, where Python would write `[1e-07]`."""
    return stringify(list(values))


def key_of_row(table: TableSchema, row: Row) -> str:
    return key_text(row[table.index[column]] for column in table.primary_key)


def counts(changes: Iterable[RowChange], schema: Schema) -> dict[str, dict[str, int]]:
    """The reference counts after a hydration, as the corpus writes them."""
    found: dict[str, Counter[str]] = {}
    for change in changes:
        found.setdefault(change.table, Counter())[key_of_row(schema.tables[change.table], change.row)] += 1
    return {table: dict(counter) for table, counter in found.items()}


def emission(change: RowChange, schema: Schema) -> Emission:
    """A row change in the corpus's form."""
    table = schema.tables[change.table]
    named = table.named(change.row)
    shown = {column: named[column] for column in table.primary_key} if change.op == "remove" else named
    return (change.op, change.table, shown)


def emission_id(each: Emission, schema: Schema) -> RowId:
    _, table, row = each
    return (table, key_text(row[column] for column in schema.tables[table].primary_key))


@dataclass
class Holder:
    """What a receiver of row changes holds: reference counts and the last values seen."""

    schema: Schema
    references: Counter[RowId] = field(default_factory=Counter)
    rows: dict[RowId, Any] = field(default_factory=dict)

    def effect(self, emissions: Iterable[Emission]) -> dict[RowId, tuple[int, Any]]:
        """The net effect: per row the change of its count, and its values if they are new."""
        deltas: Counter[RowId] = Counter()
        latest: dict[RowId, Any] = {}
        for each in emissions:
            row_id = emission_id(each, self.schema)
            deltas[row_id] += {"add": 1, "remove": -1}.get(each[0], 0)
            if each[0] != "remove":
                latest[row_id] = each[2]
        effects: dict[RowId, tuple[int, Any]] = {}
        for row_id, delta in deltas.items():
            news = latest.get(row_id)
            if news is not None and same(news, self.rows.get(row_id)):
                news = None
            if delta or news is not None:
                effects[row_id] = (delta, news)
        return effects

    def receive(self, emissions: Iterable[Emission]) -> None:
        for each in emissions:
            row_id = emission_id(each, self.schema)
            self.references[row_id] += {"add": 1, "remove": -1}.get(each[0], 0)
            if each[0] != "remove":
                self.rows[row_id] = each[2]

    def missing(self, visible: Iterable[RowId]) -> list[RowId]:
        """Rows of the tree that the receiver does not hold."""
        return [row_id for row_id in visible if self.references[row_id] <= 0]


def same_effect(left: dict[RowId, tuple[int, Any]], right: dict[RowId, tuple[int, Any]]) -> bool:
    return left.keys() == right.keys() and all(
        left[key][0] == right[key][0] and (left[key][0] < 0 or same(left[key][1], right[key][1])) for key in left
    )


def visible_rows(result: Any, query: Query, format: Format, schema: Schema) -> Iterator[RowId]:
    """The rows a result tree shows."""
    for entry in result if isinstance(result, list) else [] if result is None else [result]:
        table = schema.tables[query.table]
        yield (table.name, key_text(entry[column] for column in table.primary_key))
        for name, below in format.relationships.items():
            child = shown_query([related for related in query.related if related.alias == name][-1])
            yield from visible_rows(entry[name], child, below, schema)


def shown_query(related: CorrelatedSubquery) -> Query:
    """The query whose rows appear under a relationship: behind the junction if there is one."""
    return related.subquery.related[0].subquery if related.hidden else related.subquery
