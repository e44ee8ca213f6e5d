"""The signals that ask a command to stop."""

from __future__ import annotations

import asyncio
import signal


def first_signal(*more: signal.Signals) -> asyncio.Future[signal.Signals]:
    """The first signal to stop, from now on: SIGTERM, SIGINT, or one of these."""
    loop = asyncio.get_running_loop()
    received: asyncio.Future[signal.Signals] = loop.create_future()

    def note(number: signal.Signals) -> None:
        if not received.done():
            received.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT, *more):
        loop.add_signal_handler(number, note, number)
    return received
