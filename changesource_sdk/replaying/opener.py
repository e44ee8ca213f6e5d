"""Moves the end of a replay's window forward at a given rate, and waits until a consumer has all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from changesource_sdk.changelog.coordination.consumers import transaction_of
from changesource_sdk.changelog.coordination.contract import Coordination
from changesource_sdk.changelog.log import Log
from changesource_sdk.changelog.sqlite.wakeup import WakeupSender
from changesource_sdk.errors import StateError
from changesource_sdk.replaying.window import ReplayWindow

READ_BYTES = 4 << 20
POLL_SECONDS = 0.1


@dataclass(slots=True)
class Opener:
    """Moves the window's head to `end`, by `rate` transactions per second (0: as fast as they are read).

    Runs in the event loop and reads the log in threads. Invariant: the head is a watermark of the log, at most `end`.
    """

    reader: Log
    window: ReplayWindow
    end: str
    rate: float
    sender: WakeupSender
    opened: int = 0  # transactions moved into the window so far; written by `run`

    async def run(self, is_anyone_following: Callable[[], bool]) -> None:
        """Wait for a consumer that has its initial sync, then move the head to `end`.

        Transactions that enter the window before would only become part of the initial sync. Raises `StateError` if the
        log no longer has what follows the head.
        """
        while not is_anyone_following():  # noqa: ASYNC110 - streams start without an event
            await asyncio.sleep(POLL_SECONDS)
        while self.window.head < self.end:
            transactions = await asyncio.to_thread(self.reader.read_after, self.window.head, READ_BYTES)
            if not transactions or self.reader.state().oldest > self.window.head:
                raise StateError("log-moved", "the log was pruned or started over meanwhile", fix="start again")
            for stored in transactions:
                if stored.watermark > self.end:
                    return
                self.window.head = stored.watermark
                self.opened += 1
                if self.rate:
                    self.sender.send()
                    await asyncio.sleep(1 / self.rate)
            self.sender.send()

    async def until_acknowledged(self, coordination: Coordination) -> None:
        """Wait until a consumer has acknowledged `end`."""
        while not any(each.acknowledged >= self.end for each in coordination.consumers()):  # noqa: ASYNC110 - a file
            await asyncio.sleep(POLL_SECONDS)


def checked_watermark(reader: Log, after: str, watermark: str) -> str:
    """Return the log's own form of a watermark at or above `after`; a replica version names its transaction.

    Raises `StateError` if the log has no such transaction.
    """
    wanted = transaction_of(watermark)
    while after < wanted:
        transactions = reader.read_after(after, READ_BYTES)
        if not transactions:
            break
        after = next(
            (stored.watermark for stored in transactions if stored.watermark >= wanted), transactions[-1].watermark
        )
    if transaction_of(after) != wanted:
        fix = "`changesource tail --from start` and `inspect` show watermarks"
        raise StateError("unknown-watermark", "the log has no transaction with this watermark", watermark, fix)
    return after
