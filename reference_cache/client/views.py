"""Live views: a query's result that stays current, with people listening to it.

The result is there at once, from the rows the client has; `status` says whether the server has sent all of it. A view
changes by whole transactions, and tells its listeners on the next turn of the event loop, if its result or its status
is another than they were told last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Literal, TypeAlias

from reference_cache.client.errors import ClientError, QueryRefused
from reference_cache.zql.ivm.view import Result, View

Status: TypeAlias = Literal["unknown", "complete", "error"]
Listener: TypeAlias = Callable[[Result, Status], None]


class LiveView:
    """One query of one user of the client. Invariant: `result` is the query's result on the rows shown now."""

    def __init__(self, view: View, hash: str, release: Callable[[LiveView], None]) -> None:
        self.hash = hash
        self.status: Status = "unknown"
        self.error: QueryRefused | None = None
        self.view = view
        self.is_closed = False
        self._release = release
        self._told: tuple[Result, Status] = (view.result, "unknown")
        self._listeners: list[Listener] = []
        self._changed = asyncio.Event()
        self._is_told_soon = False
        view.listen(lambda _: self._tell_soon())

    @property
    def result(self) -> Result:
        """A list of rows, or for a query of one a row or None. Do not modify it."""
        return self.view.result

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call with result and status now and after every change; returns how to stop."""
        self._listeners.append(listener)
        listener(self.result, self.status)
        return lambda: self._listeners.remove(listener)

    async def complete(self) -> Result:
        """The result once the server has sent all of it; raises `QueryRefused` if it never will."""
        return await self.until(lambda result: self.status == "complete")

    async def until(self, holds: Callable[[Result], bool]) -> Result:
        """The first result, from now on, of which something holds; raises `QueryRefused`."""
        while not holds(self.result):
            if self.error is not None:
                raise self.error
            if self.is_closed:
                raise ClientError("view-closed", "the view was closed while somebody waited for it", self.hash)
            await self._changed.wait()
        return self.result

    async def changes(self) -> AsyncIterator[Result]:
        """The result now and after every change, until the view is closed; what was missed is skipped."""
        while not self.is_closed:
            changed = self._changed
            yield self.result
            await changed.wait()

    def close(self) -> None:
        """Stop keeping the result current; the server is told when nobody else wants the query."""
        if not self.is_closed:
            self.is_closed = True
            self._release(self)
            self._wake()

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_status(self, status: Status, error: QueryRefused | None = None) -> None:
        """The server has sent all of it, or said that it never will."""
        self.status, self.error = status, error
        self._tell_soon()

    def _tell_soon(self) -> None:
        """Listeners may do anything, also mutate or close views, so none is called while rows are changing."""
        if not self._is_told_soon:
            self._is_told_soon = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_told_soon = False
        now = (self.result, self.status)
        if self.is_closed or now == self._told:
            return
        self._told = now
        self._wake()
        for listener in list(self._listeners):
            try:
                listener(*now)
            except Exception as error:
                # A listener's mistake is its own; the rows and everyone else's views go on.
                context = {"message": f"a listener of view {self.hash} failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
