"""Long work on the event loop, in slices, so that sockets are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

from reference_cache.zql.ivm.time_slice import TimeSlice

T = TypeVar("T")


class Pace:
    """How long work may go on before others get their turn."""

    __slots__ = ("_slice", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._slice = TimeSlice(seconds)

    @property
    def slice(self) -> TimeSlice:
        """The slice that is running."""
        return self._slice

    def expired(self) -> bool:
        return self._slice.expired()

    def begin(self) -> None:
        """Work begins after others had their turn."""
        self._slice.restart()

    async def pause(self) -> None:
        """Let the others run, if the time is up."""
        if self._slice.expired():
            await asyncio.sleep(0)
            self._slice.restart()

    async def collected(self, items: Iterable[T], every: int = 64) -> list[T]:
        """All items, worked out with pauses in between."""
        rest, found = iter(items), list[T]()
        while some := list(islice(rest, every)):
            found += some
            if self._slice.expired():
                await self.pause()
        return found

    async def sliced(self, items: Iterable[T], every: int = 64) -> AsyncIterator[T]:
        """The items, with pauses in between."""
        for count, item in enumerate(items, 1):
            yield item
            if not count % every and self._slice.expired():
                await self.pause()
