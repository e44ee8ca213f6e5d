"""Structured logs: one event per line, with the field names the metrics use.

`event(logger, level, "consumer connected", app="zero", watermark="…")` is all the rest of the project calls. Every line
is redacted, whatever wrote it: messages, fields and stack traces may quote a driver that quotes a password.
`Throttle` keeps a peer that connects forty times a second from filling the disk: the first event of a kind is logged
at once, the following ones are counted, and the next line has the count.
"""

from __future__ import annotations

import json
import logging
import secrets
import sys
import time
from collections.abc import Callable
from typing import TextIO

from protocol.redaction import redact, redact_value

LOGGER_NAME = "changesource"


def logger(part: str) -> logging.Logger:
    """The logger of a part of the project, such as `endpoint` or `cache.server`."""
    return logging.getLogger(f"{LOGGER_NAME}.{part}")


def event(log: logging.Logger, level: int, what: str, /, **fields: object) -> None:
    """Log one event with its fields; None fields are left out."""
    if log.isEnabledFor(level):
        log.log(level, what, extra={"fields": _without_none(fields)})


def unexpected(log: logging.Logger, what: str, error: BaseException, **fields: object) -> str:
    """Log an exception that nobody expected, with its trace and a new id; returns a text for a client, with the id."""
    error_id = secrets.token_hex(6)
    log.error(what, exc_info=error, extra={"fields": {"error_id": error_id, **_without_none(fields)}})
    return f"Internal error; the server's log has it under error id {error_id}"


def quiet_logger(part: str) -> logging.Logger:
    """A logger for a library whose lines say in a stack trace what ours say in a line."""
    quiet = logger(part)
    quiet.setLevel(logging.CRITICAL)
    return quiet


def _without_none(fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


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
    """The fields as they are printed, without secrets; a value that is not JSON is printed as text."""
    known = (str, int, float, bool, type(None), dict, list, tuple)
    return redact_value({key: item if isinstance(item, known) else str(item) for key, item in value.items()})


def _pairs(record: logging.LogRecord) -> str:
    return "".join(f" {key}={_word(value)}" for key, value in getattr(record, "fields", {}).items())


def _word(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "\n=') else text


def configure(*, form: str, level: str, stream: TextIO | None = None) -> None:
    """Send the project's events to one stream (default: standard error); may be called again."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger(LOGGER_NAME)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


class Throttle:
    """Lets one event of each kind through per interval (seconds). Invariant: memory is bounded by `kinds`."""

    def __init__(self, interval: float, kinds: int = 256, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._kinds = kinds
        self._clock = clock
        # kind -> (when one was last let through, how many were held back since); written by `admit`
        self._seen: dict[str, tuple[float, int]] = {}

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
