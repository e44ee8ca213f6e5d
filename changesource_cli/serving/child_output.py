"""Logs what the pipeline's process writes to standard error.

Its log records (`relayed`) keep their level and fields; a repeated one is logged once per interval. Errors that the
pipeline retries are not here but in its stage report, which is logged once with the fix. All other lines, such as stack
traces, are logged at debug level, and at error level only if the process crashes: a user's mistake has a message, a bug
has a trace.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque

from changesource_sdk.observe.relayed import decode
from service_kit.logs import LOGGER_NAME, Throttle, event, logger

log = logger("pipeline")

_FINAL_ERROR = re.compile(r"(error\[[\w-]+\]|fix): .*")
REPEAT_INTERVAL = 60.0
"""Seconds."""
LAST_LINES = 40


class ChildOutput:
    """Reads one child's standard error to its end. Invariant: at most `LAST_LINES` lines are kept."""

    def __init__(self) -> None:
        self._throttle = Throttle(REPEAT_INTERVAL)
        # The last lines that are neither log records nor final errors; `take` appends, `log_crash` prints them.
        self._unexplained: deque[str] = deque(maxlen=LAST_LINES)

    async def relay(self, stream: asyncio.StreamReader) -> None:
        """Log every line until the stream ends."""
        while line := await _next_line(stream):
            self.take(line.decode(errors="replace").rstrip("\n"))

    def take(self, line: str) -> None:
        """Log one line."""
        if record := decode(line):
            self._log_record(record)
        elif _FINAL_ERROR.fullmatch(line):
            self._log(logging.ERROR, line, {})
        else:
            self._unexplained.append(line)
            event(log, logging.DEBUG, line)

    def log_crash(self) -> None:
        """Log the last lines; for a child that exited without a message of its own."""
        if self._unexplained:
            log.error("pipeline crashed; it said last:\n%s", "\n".join(self._unexplained))

    def _log_record(self, record: logging.LogRecord) -> None:
        source = record.name.removeprefix(LOGGER_NAME + ".")
        self._log(record.levelno, record.getMessage(), {**record.__dict__["fields"], "source": source})
        if record.exc_text:
            event(log, logging.DEBUG, record.exc_text, source=source)

    def _log(self, level: int, text: str, fields: dict[str, object]) -> None:
        repeated = self._throttle.admit(f"{text} {fields}")
        if repeated is not None:
            event(log, level, text, **{**fields, "repeated": repeated or None})


async def _next_line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:
        # The line was longer than the reader's limit, and the reader has dropped it.
        return b"(a very long line)\n"
