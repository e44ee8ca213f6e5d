"""Structured logs: one event per line, with the field names the metrics use.

`event(logger, level, "consumer connected", app="zero", watermark="…")` is all the rest of the package calls. Every line
is redacted, whatever wrote it: messages, fields and stack traces may quote a driver that quotes a password.
`Throttle` keeps a consumer that knocks forty times a second from filling the disk: the first of a kind is logged at
once, the following ones are counted and told with the next line.

A process that another one started writes its lines in the form of `relayed`, for that one to log in its own form.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import TextIO

from protocol.redaction import redact, redact_value

LOGGER_NAME = "changesource"


def logger(part: str) -> logging.Logger:
    return logging.getLogger(f"{LOGGER_NAME}.{part}")


def event(log: logging.Logger, level: int, what: str, /, **fields: object) -> None:
    """Log one event with its fields; None fields are left out."""
    if log.isEnabledFor(level):
        log.log(level, what, extra={"fields": {k: v for k, v in fields.items() if v is not None}})


class TextFormatter(logging.Formatter):
    """`time level part: event key=value …`, for people."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        part = record.name.removeprefix(LOGGER_NAME + ".")
        line = f"{clock} {record.levelname.lower():<7} {part}: {record.getMessage()}{_pairs(record)}"
        return redact(f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line)


class JsonFormatter(logging.Formatter):
    """One JSON object per line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        part = record.name.removeprefix(LOGGER_NAME + ".")
        head = {"time": record.created, "level": record.levelname.lower(), "part": part, "event": record.getMessage()}
        if record.exc_info:
            head["traceback"] = self.formatException(record.exc_info)
        return json.dumps(_plain(head | getattr(record, "fields", {})), default=str, ensure_ascii=False)


def _plain(value: dict[str, object]) -> object:
    """The fields as they are printed, without secrets: what is no JSON is printed as text."""
    known = (str, int, float, bool, type(None), dict, list, tuple)
    return redact_value({key: item if isinstance(item, known) else str(item) for key, item in value.items()})


def _pairs(record: logging.LogRecord) -> str:
    return "".join(f" {key}={_word(value)}" for key, value in getattr(record, "fields", {}).items())


def _word(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "\n=') else text


def configure(*, form: str, level: str, stream: TextIO | None = None) -> None:
    """Send the package's events to one stream (standard error unless told); may be called again."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger(LOGGER_NAME)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


class Throttle:
    """Lets one event of each kind through per interval. Invariant: memory is bounded by `kinds`."""

    def __init__(self, interval: float, kinds: int = 256, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._kinds = kinds
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}  # kind -> (when last let through, held back since)

    def admit(self, kind: str) -> int | None:
        """How many of this kind were held back since the last one, or None if this one is held back too."""
        now = self._clock()
        last, held = self._seen.get(kind, (float("-inf"), 0))
        if now - last < self._interval:
            self._seen[kind] = (last, held + 1)
            return None
        if kind not in self._seen and len(self._seen) >= self._kinds:
            self._seen.pop(min(self._seen, key=lambda k: self._seen[k][0]))
        self._seen[kind] = (now, 0)
        return held
