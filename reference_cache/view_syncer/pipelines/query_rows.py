"""The rows of a running query, and the net effect of changes on them.

Clients see sets: a row is in a query's set while the pipeline references it at least once, however often. Patches are
net: a row that came and left since the last `patches` is not in them, nor one that ended as it began.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from reference_cache.view_syncer.cvr.records import RowPatch
from reference_cache.view_syncer.pipelines.row_keys import RowKeys
from reference_cache.zql.engine.engine import EngineError
from reference_cache.zql.engine.row_set import RowId, RowSet
from reference_cache.zql.schema import Row


class TooManyRows(Exception):
    """A query has more rows than one may have."""

    code = "query-too-large"


class QueryRows(RowSet):
    """Receives a pipeline's row references (`RowReceiver`). Invariant: has exactly the rows the pipeline references.

    `most_rows` limits the references made by the hydration, not those made by later changes.
    """

    __slots__ = ("_before", "_keys", "_most_rows", "_references", "_touched")

    def __init__(self, keys: RowKeys, touched: dict[QueryRows, None], most_rows: int = sys.maxsize) -> None:
        super().__init__()
        self._most_rows = most_rows
        # References made by the hydration.
        self._references = 0
        # What each row was when it was first touched after the last `patches` (None: not in the set).
        self._before: dict[RowId, Row | None] = {}
        # The key functions of the evaluation that has the pipeline; replaced by `move_to`.
        self._keys = keys
        # That evaluation's set of touched queries: `_touch` adds this object to it. Replaced by `move_to`.
        self._touched = touched

    def move_to(self, keys: RowKeys, touched: dict[QueryRows, None]) -> None:
        """Belong to another evaluation, which identifies rows by the same keys."""
        self._keys, self._touched = keys, touched

    def hydrated(self, table: str, row: Row) -> None:
        """Count a reference of the hydration; raises `TooManyRows`."""
        if self._references >= self._most_rows:
            raise TooManyRows(f"more than {self._most_rows} rows, counted as often as they are reached")
        self._references += 1
        self.add((table, self._keys[table].key(row)), row)

    def added(self, table: str, row: Row) -> None:
        """Count one reference more."""
        self.add(self._touch(table, row), row)

    def removed(self, table: str, row: Row) -> None:
        """Count one reference less."""
        try:
            self.remove(self._touch(table, row))
        except KeyError:
            raise _not_there() from None

    def edited(self, table: str, row: Row) -> None:
        """Take new values."""
        try:
            self.replace(self._touch(table, row), row)
        except KeyError:
            raise _not_there() from None

    def _touch(self, table: str, row: Row) -> RowId:
        """The row's id, once its present values are noted."""
        row_id = table, self._keys[table].key(row)
        if row_id not in self._before:
            self._before[row_id] = self.get(row_id)
            self._touched[self] = None
        return row_id

    def patches(self) -> Iterator[RowPatch]:
        """The net effect since the last call. Read it to the end before anything else is pushed."""
        before, self._before = self._before, {}
        for row_id, old in before.items():
            new = self.get(row_id)
            if old != new:
                values = old if new is None else new
                assert values is not None
                yield RowPatch(row_id, self._keys[row_id[0]].text(values), new)


def _not_there() -> EngineError:
    # Happens only if a client gives a relationship and an EXISTS the same alias; the official builder never does.
    return EngineError("a row left the query that was not in it")
