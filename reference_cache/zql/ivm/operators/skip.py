"""Skip: rows from a start position on."""

from __future__ import annotations

from reference_cache.zql.ivm.change import YIELD, Change, Stream, filter_change
from reference_cache.zql.ivm.one_input import OneInput
from reference_cache.zql.ivm.operator import Input, Request, StartPosition
from reference_cache.zql.schema import Row


class Skip(OneInput):
    """Passes the rows at (if inclusive) or after the bound. Stateless; the bound row need not exist."""

    def __init__(self, input: Input, bound: StartPosition) -> None:
        super().__init__(input)
        self._bound = bound
        self._order_key = input.schema.order_key
        self._position_key = input.schema.position_key
        self._bound_key = self._position_key(bound.row)

    def fetch(self, request: Request) -> Stream:
        if request.reverse:
            return self._back_to_bound(request)
        return self._input.fetch(request.with_start(self._later(request.start)))

    def _later(self, start: StartPosition | None) -> StartPosition:
        if start is None:
            return self._bound
        key = self._position_key(start.row)
        if key == self._bound_key:
            return start if not start.inclusive else self._bound
        return self._bound if key < self._bound_key else start

    def _back_to_bound(self, request: Request) -> Stream:
        for node in self._input.fetch(request):
            if node is not YIELD and not self._passes(node.row):
                return
            yield node

    def _passes(self, row: Row) -> bool:
        key = self._order_key(row)
        return bool(self._bound_key < key) or (self._bound.inclusive and bool(self._bound_key == key))

    def _push(self, change: Change) -> None:
        passed = filter_change(change, self._passes)
        if passed is not None:
            self._output(passed)
