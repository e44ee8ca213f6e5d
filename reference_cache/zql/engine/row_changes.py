"""From changes of a pipeline's output to changes of rows: what has to be sent to whoever keeps the query's rows.

A query's rows are all rows in its tree, junction rows and the rows that made an EXISTS true included; only what hangs
below a `permissions` relationship stays on the server. A row reached n times is announced n times, so receivers count
references: add +1, remove -1, edit 0; the row is gone at zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from reference_cache.zql.ivm.change import YIELD, Add, Change, Child, Edit, Node, Pause
from reference_cache.zql.ivm.operator import InputSchema
from reference_cache.zql.schema import Row

Op: TypeAlias = Literal["add", "remove", "edit"]


class RowChange:
    """One row of one query was referenced once more, once less, or has new values (`row`; for a remove the last)."""

    __slots__ = ("op", "query_id", "row", "table")

    def __init__(self, query_id: str, op: Op, table: str, row: Row) -> None:
        self.query_id = query_id
        self.op = op
        self.table = table
        self.row = row

    def __repr__(self) -> str:
        return f"RowChange({self.query_id!r}, {self.op!r}, {self.table!r}, {self.row!r})"


class RowChanges:
    """Turns the changes of one level of a query into row changes. Stateless; one object per level of the schema."""

    __slots__ = ("_below", "_query_id", "_table")

    def __init__(self, query_id: str, schema: InputSchema) -> None:
        self._query_id = query_id
        self._table = schema.table.name
        self._below = {
            name: RowChanges(query_id, child)
            for name, child in schema.relationships.items()
            if child.system != "permissions"
        }

    def expand(self, change: Change, out: list[RowChange]) -> None:
        """Append the row changes a change stands for."""
        if isinstance(change, Child):
            below = self._below.get(change.name)
            if below is not None:
                below.expand(change.change, out)
        elif isinstance(change, Edit):
            out.append(RowChange(self._query_id, "edit", self._table, change.node.row))
        else:
            self.expand_node(change.node, "add" if isinstance(change, Add) else "remove", out)

    def adds(self, node: Node) -> Iterator[RowChange | Pause]:
        """The node and each node below it as adds, depth first; pauses as the streams below have them."""
        yield RowChange(self._query_id, "add", self._table, node.row)
        if not self._below:
            return
        for name, children in node.relationships.items():
            below = self._below.get(name)
            if below is None:
                continue
            for child in children():
                if child is YIELD:
                    yield child
                elif below._below:
                    yield from below.adds(child)
                else:
                    yield RowChange(below._query_id, "add", below._table, child.row)

    def expand_node(self, node: Node, op: Op, out: list[RowChange]) -> None:
        """Append one row change for the node and for each node below it, depth first."""
        out.append(RowChange(self._query_id, op, self._table, node.row))
        for name, children in node.relationships.items():
            below = self._below.get(name)
            if below is None:
                continue
            for child in children():
                if child is not YIELD:
                    below.expand_node(child, op, out)
