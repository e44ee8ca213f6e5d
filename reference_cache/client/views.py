"""Live views: the result of a query, kept current, with listeners.

The result is available immediately, from the client's rows; `status` says whether the server has sent all of it. A view
changes by whole transactions. It calls its listeners on the next turn of the event loop, if the result or the status
differs from what they were last called with.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeAlias

from reference_cache.client.errors import ClientError, QueryRefused
from reference_cache.zql.ivm.view import Result, View

Status: TypeAlias = Literal["unknown", "complete", "error"]
Listener: TypeAlias = Callable[[Result, Status], None]


class LiveView:
    """One view of one query. Invariant: `result` is the query's result on the client's rows.

    All attributes change on the client's event loop only.
    """

    def __init__(self, view: View, hash: str, release: Callable[[LiveView], None]) -> None:
        self.hash = hash
        # "complete" when the server has sent the whole result, "error" when it refused the query; written by the
        # session, with `set_status`.
        self.status: Status = "unknown"
        # Why, while the status is "error".
        self.error: QueryRefused | None = None
        self.view = view
        # Set by `close`; listeners are not called any more.
        self.is_closed = False
        self._release = release
        # Ends a wait for the server when the client stops connecting; set by the client that made the view.
        self.while_connected: Callable[[Coroutine[Any, Any, Result]], Awaitable[Result]] | None = None
        # What listeners were last called with.
        self._notified: tuple[Result, Status] = (view.result, "unknown")
        # In the order they were added; `listen` adds, its return value removes.
        self._listeners: list[Listener] = []
        # Set and replaced by a new one at every notification and at `close`.
        self._changed = asyncio.Event()
        # Whether `_notify` is scheduled for the next turn of the event loop.
        self._is_notify_scheduled = False
        view.listen(lambda _: self._schedule_notify())

    @property
    def result(self) -> Result:
        """A list of rows; for a query with `one()`, a row or None. Do not modify it."""
        return self.view.result

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with result and status now and after every change; returns a function that removes it."""
        self._listeners.append(listener)
        listener(self.result, self.status)
        return lambda: self._listeners.remove(listener)

    async def complete(self) -> Result:
        """The result once the server has sent all of it.

        Raises `QueryRefused`, `Disconnected` with its cause if the client has stopped connecting, or `ClientError` if
        the view is closed.
        """
        result = self.until(lambda result: self.status == "complete")
        if self.status == "complete" or self.while_connected is None:
            return await result
        return await self.while_connected(result)

    async def until(self, holds: Callable[[Result], bool]) -> Result:
        """The first result, from now on, that satisfies a condition; raises as `complete` does."""
        while not holds(self.result):
            if self.error is not None:
                raise self.error
            if self.is_closed:
                raise ClientError("view-closed", "the view was closed while a call waited for its result", self.hash)
            await self._changed.wait()
        return self.result

    async def changes(self) -> AsyncIterator[Result]:
        """Yield the result now and after changes, until the view is closed; a slow reader skips results."""
        while not self.is_closed:
            changed = self._changed
            yield self.result
            await changed.wait()

    def close(self) -> None:
        """Stop updating the result; the last view of a query also removes it from the desired queries."""
        if not self.is_closed:
            self.is_closed = True
            self._release(self)
            self._wake()

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_status(self, status: Status, error: QueryRefused | None = None) -> None:
        """Called by the session when the server has sent the whole result or refused the query."""
        self.status, self.error = status, error
        self._schedule_notify()

    def _schedule_notify(self) -> None:
        """Not synchronously: listeners may mutate or close views, which must not happen while rows are changing."""
        if not self._is_notify_scheduled:
            self._is_notify_scheduled = True
            asyncio.get_running_loop().call_soon(self._notify)

    def _notify(self) -> None:
        self._is_notify_scheduled = False
        now = (self.result, self.status)
        if self.is_closed or now == self._notified:
            return
        self._notified = now
        self._wake()
        for listener in list(self._listeners):
            try:
                listener(*now)
            except Exception as error:
                # A failing listener must not keep the others and the rest of the poke from being processed.
                context = {"message": f"a listener of view {self.hash} failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
