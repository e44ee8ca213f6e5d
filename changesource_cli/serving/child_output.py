"""What the pipeline's process writes to standard error, as events of ours.

Its log records (`relayed`) keep their level and fields; one said again and again is logged once per interval. An error
it will try again is left to the stage file, which has the fix and is logged once. Everything else, stack traces above
all, stays at debug level and is shown only if the process dies of it: a user's mistake has a message, a bug a trace.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque

from changesource_sdk.observe.logs import LOGGER_NAME, Throttle, event, logger
from changesource_sdk.observe.relayed import decode

log = logger("pipeline")

_ENDING = re.compile(r"(error\[[\w-]+\]|fix): .*")
REPEAT_INTERVAL = 60.0
LAST_LINES = 40


class ChildOutput:
    """Reads one child's standard error to its end. Invariant: at most `LAST_LINES` lines are kept."""

    def __init__(self) -> None:
        self._throttle = Throttle(REPEAT_INTERVAL)
        self._unexplained: deque[str] = deque(maxlen=LAST_LINES)

    async def relay(self, stream: asyncio.StreamReader) -> None:
        """Pass lines on until the stream ends."""
        while line := await _next_line(stream):
            self.take(line.decode(errors="replace").rstrip("\n"))

    def take(self, line: str) -> None:
        """Pass one line on."""
        if record := decode(line):
            self._tell_record(record)
        elif _ENDING.fullmatch(line):
            self._tell(logging.ERROR, line, {})
        else:
            self._unexplained.append(line)
            event(log, logging.DEBUG, line)

    def tell_crash(self) -> None:
        """The child died without an explanation of its own: show what it said last."""
        if self._unexplained:
            log.error("pipeline crashed; it said last:\n%s", "\n".join(self._unexplained))

    def _tell_record(self, record: logging.LogRecord) -> None:
        source = record.name.removeprefix(LOGGER_NAME + ".")
        self._tell(record.levelno, record.getMessage(), {**record.__dict__["fields"], "source": source})
        if record.exc_text:
            event(log, logging.DEBUG, record.exc_text, source=source)

    def _tell(self, level: int, text: str, fields: dict[str, object]) -> None:
        repeated = self._throttle.admit(f"{text} {fields}")
        if repeated is not None:
            event(log, level, text, **{**fields, "repeated": repeated or None})


async def _next_line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:
        # Longer than the reader's limit, which has dropped it: go on with the next.
        return b"(a very long line)\n"
