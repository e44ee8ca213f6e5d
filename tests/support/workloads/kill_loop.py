"""Faults one after the other under a consumer that follows, each once the one before was overcome."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial

from tests.support.peers.spark_serving import SPARK_SECONDS
from tests.support.waiting import until


def wreak(
    strike: Callable[[int], object], progress: Callable[[], int], dice: random.Random, *, rounds: int, steps: int
) -> None:
    """Strike so many times, counted from 0; before each, `progress` has grown by some steps, fewer than `steps`."""
    for number in range(rounds):
        wanted = progress() + dice.randrange(1, steps)
        until(partial(_has_reached, progress, wanted), f"progress after {number} strikes", seconds=SPARK_SECONDS)
        strike(number)


def _has_reached(progress: Callable[[], int], wanted: int) -> bool:
    return progress() >= wanted


async def while_following(following: asyncio.Task[None], work: Callable[[], None]) -> None:
    """Do the work in a thread; what the consumer finds wrong meanwhile is raised at once."""
    working = asyncio.create_task(asyncio.to_thread(work))
    await asyncio.wait({working, following}, return_when=asyncio.FIRST_COMPLETED)
    if following.done():
        following.result()
    await working
