"""The signals that stop a command."""

from __future__ import annotations

import asyncio
import signal


def first_signal(*more: signal.Signals) -> asyncio.Future[signal.Signals]:
    """Return a future of the first SIGTERM, SIGINT or one of `more` from now on. Call it on the event loop."""
    loop = asyncio.get_running_loop()
    received: asyncio.Future[signal.Signals] = loop.create_future()

    def note(number: signal.Signals) -> None:
        if not received.done():
            received.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT, *more):
        loop.add_signal_handler(number, note, number)
    return received
