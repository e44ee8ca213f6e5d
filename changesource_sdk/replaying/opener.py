"""Moving the end of a window on, transaction by transaction, at a pace; and knowing when a consumer has all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from changesource_sdk.changelog.consumers import transaction_of
from changesource_sdk.changelog.coordination import Coordination
from changesource_sdk.changelog.log import Log
from changesource_sdk.changelog.sqlite.wakeup import WakeupSender
from changesource_sdk.errors import StateError
from changesource_sdk.replaying.window import Window

READ_BYTES = 4 << 20
LOOK_SECONDS = 0.1


@dataclass(slots=True)
class Opener:
    """Opens a window up to `end`. Invariant: its head is a watermark of the log, never above `end`."""

    reader: Log
    window: Window
    end: str
    rate: float
    sender: WakeupSender
    opened: int = 0

    async def run(self, is_anyone_following: Callable[[], bool]) -> None:
        """Wait for a consumer that has its initial sync, then move on to the end; with a rate, so many transactions a
        second. Earlier, what is opened would only become part of the initial sync.
        """
        while not is_anyone_following():  # noqa: ASYNC110 - streams come and go without a word
            await asyncio.sleep(LOOK_SECONDS)
        while self.window.head < self.end:
            found = await asyncio.to_thread(self.reader.read_after, self.window.head, READ_BYTES)
            if not found or self.reader.state().oldest > self.window.head:
                raise StateError("log-moved", "the log was pruned or started over meanwhile", fix="start again")
            for stored in found:
                if stored.watermark > self.end:
                    return
                self.window.head = stored.watermark
                self.opened += 1
                if self.rate:
                    self.sender.send()
                    await asyncio.sleep(1 / self.rate)
            self.sender.send()

    async def until_acknowledged(self, coordination: Coordination) -> None:
        """Until a consumer has made everything up to the end durable."""
        while not any(each.acknowledged >= self.end for each in coordination.consumers()):  # noqa: ASYNC110 - a file
            await asyncio.sleep(LOOK_SECONDS)


def checked_watermark(reader: Log, after: str, watermark: str) -> str:
    """The watermark of the transaction after `after`, or of `after` itself, that `watermark` names or was issued at;
    `StateError` if there is none.
    """
    wanted = transaction_of(watermark)
    while after < wanted:
        found = reader.read_after(after, READ_BYTES)
        if not found:
            break
        after = next((stored.watermark for stored in found if stored.watermark >= wanted), found[-1].watermark)
    if transaction_of(after) != wanted:
        fix = "`changesource tail --from start` and `inspect` show watermarks"
        raise StateError("unknown-watermark", "the log has no transaction with this watermark", watermark, fix)
    return after
