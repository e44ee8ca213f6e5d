"""Long work on the event loop, in slices, so that sockets are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

from reference_cache.zql.ivm.time_slice import TimeSlice

T = TypeVar("T")


class Pace:
    """Lets other tasks run when work has occupied the event loop for a time slice of `seconds`."""

    __slots__ = ("_slice", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._slice = TimeSlice(seconds)

    @property
    def slice(self) -> TimeSlice:
        """The present slice; `Effort` and sources read it."""
        return self._slice

    def expired(self) -> bool:
        return self._slice.expired()

    def begin(self) -> None:
        """Start a new slice, because other tasks have just run."""
        self._slice.restart()

    async def pause(self) -> None:
        """Let other tasks run, if the slice is used up."""
        if self._slice.expired():
            await asyncio.sleep(0)
            self._slice.restart()

    async def collected(self, items: Iterable[T], every: int = 64) -> list[T]:
        """All items in a list, computed with pauses in between."""
        rest, collected = iter(items), list[T]()
        while some := list(islice(rest, every)):
            collected += some
            if self._slice.expired():
                await self.pause()
        return collected

    async def sliced(self, items: Iterable[T], every: int = 64) -> AsyncIterator[T]:
        """Yield the items, with pauses in between."""
        for count, item in enumerate(items, 1):
            yield item
            if not count % every and self._slice.expired():
                await self.pause()
