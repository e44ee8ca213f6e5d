"""What a query reads from its tables: every shape of request, and the rows it read.

`Reads.wrap` is a hook for `build.Host`, as that of `meter`: it watches where a pipeline meets a table. Rows are counted
under the shape of the request, without its values, so that the thousand requests of a join have one entry.
"""

from __future__ import annotations

from collections import defaultdict

from reference_cache.zql.ivm.change import YIELD, Change, Stream
from reference_cache.zql.ivm.one_input import OneInput
from reference_cache.zql.ivm.operator import Columns, Input, Request
from reference_cache.zql.ivm.source import Connection
from reference_cache.zql.schema import Row


class Reads:
    """Rows read, by table and shape of the request; the rows themselves only where they are to be kept."""

    def __init__(self, *, keep_rows: bool) -> None:
        self.counts: dict[str, dict[str, int]] = defaultdict(dict)
        self.rows: dict[str, dict[str, list[Row]]] | None = defaultdict(dict) if keep_rows else None

    def wrap(self, operator: Input, label: str) -> Input:
        """Count the rows that an operator reads, if it is a connection to a table."""
        return _Read(operator, self) if isinstance(operator, Connection) else operator

    def total(self) -> int:
        """The number of rows read, from all tables."""
        return sum(sum(counts.values()) for counts in self.counts.values())

    def begin(self, table: str, shape: str) -> None:
        """Note a request; its shape is listed even if no row is read."""
        self.counts[table].setdefault(shape, 0)

    def note(self, table: str, shape: str, row: Row) -> None:
        """A row was read."""
        self.counts[table][shape] += 1
        if self.rows is not None:
            self.rows[table].setdefault(shape, []).append(row)


class _Read(OneInput):
    """Wraps a connection and counts the rows it yields; changes are not counted."""

    def __init__(self, input: Input, reads: Reads) -> None:
        super().__init__(input)
        self._reads = reads

    def fetch(self, request: Request) -> Stream:
        table, shape = self.schema.table.name, self._shape(request)
        self._reads.begin(table, shape)
        for node in self._input.fetch(request):
            if node is not YIELD:
                self._reads.note(table, shape, node.row)
            yield node

    def _push(self, change: Change) -> None:
        self._output(change)

    def _shape(self, request: Request) -> str:
        """A request in the words of SQL, with a question mark for each value."""
        constraints = [
            *map(_equal, request.columns),
            *(f"{_listed(any_of.columns)} IN (?)" for any_of in request.any_of),
        ]
        if request.start is not None:
            constraints.append(f"position {'>=' if request.start.inclusive else '>'} ?")
        where = f" WHERE {' AND '.join(constraints)}" if constraints else ""
        ordering = self.schema.ordering or ()
        order = ", ".join(f"{column} {direction}" for column, direction in ordering)
        reverse = " in reverse" if request.reverse else ""
        return f"SELECT FROM {self.schema.table.name}{where}{' ORDER BY ' + order if order else ''}{reverse}"


def _equal(column: str) -> str:
    return f"{column} = ?"


def _listed(columns: Columns) -> str:
    return columns[0] if len(columns) == 1 else f"({', '.join(columns)})"
