"""Scalar subqueries at run time: evaluated once to build a query, then watched.

`query.scalar` replaces an EXISTS on a single known row by a comparison with that row's value. The row still belongs to
the query's rows, and when its value changes the comparison is wrong: the query is *stale* and has to be started anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reference_cache.zql.engine.row_changes import RowChange, RowChanges
from reference_cache.zql.ivm.change import YIELD, Change, Remove
from reference_cache.zql.ivm.operator import EVERYTHING, Input
from reference_cache.zql.ordering import values_of
from reference_cache.zql.query.scalar import Companion


class CompanionWatch:
    """A companion's pipeline. Invariant: until it says stale, the row has the values the query was built with."""

    def __init__(
        self, query_id: str, companion: Companion, input: Input, out: list[RowChange], on_stale: Callable[[], None]
    ) -> None:
        self._input = input
        self._expected = companion.values
        self._values_of = values_of(companion.columns, input.schema.table)
        self._rows = RowChanges(query_id, input.schema)
        self._out = out
        self._on_stale = on_stale
        input.set_output(self._push)

    def rows(self) -> Iterator[RowChange]:
        """The companion's row, as an add."""
        for node in self._input.fetch(EVERYTHING):
            if node is not YIELD:
                found: list[RowChange] = []
                self._rows.expand_node(node, "add", found)
                yield from found

    def _push(self, change: Change) -> None:
        now = None if isinstance(change, Remove) else self._values_of(change.node.row)
        if now != self._expected:
            self._on_stale()
        self._rows.expand(change, self._out)

    def destroy(self) -> None:
        """Let go of the sources."""
        self._input.destroy()
