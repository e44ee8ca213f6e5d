"""Log records that travel from the process that wrote them to the one whose log people read.

A record is one line of JSON: on standard error from the pipeline's process to `serve`, on a socket from Spark's Python
workers to their driver (`log_socket`). In addition to the package's own records, records of other loggers at WARNING or
above are relayed, so that an adapter's author may use any logger. `Bounded` keeps a flood of one kind short.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from protocol.redaction import redact
from service_kit.logs import LOGGER_NAME

MARK = "changesource-log"
LEVEL_VARIABLE = "CHANGESOURCE_LOG_LEVEL"
LINES_PER_KIND = 10
INTERVAL_S = 60.0
MOST_KINDS = 256
LONGEST_TEXT = 4000
LONGEST_TRACE = 20_000

_OWN_LOGGERS: list[logging.Logger] = [logging.getLogger(), logging.getLogger(LOGGER_NAME)]


def encode(record: logging.LogRecord) -> str:
    """A record as one line."""
    fields: dict[str, object] = {
        MARK: record.levelname,
        "name": record.name,
        "event": record.getMessage()[:LONGEST_TEXT],
        "kind": kind_of(record),
        "time": record.created,
        "fields": getattr(record, "fields", {}),
    }
    if (notice := getattr(record, "notice", None)) is not None:
        fields["notice"] = notice
    if record.exc_info:
        fields["trace"] = logging.Formatter().formatException(record.exc_info)[-LONGEST_TRACE:]
    elif record.exc_text:
        fields["trace"] = record.exc_text
    return redact(json.dumps(fields, default=str, ensure_ascii=False))


def decode(line: str) -> logging.LogRecord | None:
    """The record of a line; None if the line is none."""
    if not line.startswith(f'{{"{MARK}"'):
        return None
    try:
        fields = json.loads(line)
        level = getattr(logging, fields[MARK])
        record = logging.LogRecord(fields["name"], level, "", 0, fields["event"], None, None)
        record.created = float(fields["time"])
        record.exc_text = fields.get("trace")
        record.__dict__.update(fields=dict(fields["fields"]), kind=fields["kind"], notice=fields.get("notice"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return record


def kind_of(record: logging.LogRecord) -> str:
    """What records that differ only in their values have in common."""
    return str(getattr(record, "kind", None) or record.msg)[:LONGEST_TEXT]


class Bounded(logging.Filter):
    """Passes, of records at WARNING or above, so many of each kind per interval; the rest is counted.

    Records that only clear a warning pass always. Invariant: memory is bounded by `MOST_KINDS`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        # By logger and kind: when the interval began, lines passed in it, lines held back in it.
        self._seen: dict[tuple[str, str], tuple[float, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes."""
        if record.levelno < logging.WARNING:
            return True
        # Texts of other packages are not known to be templates: all that one of their loggers says is one kind.
        is_own = record.name.startswith(LOGGER_NAME)
        key = (record.name, kind_of(record) if is_own else "")
        with self._lock:
            began, passed, held = self._seen.get(key, (self._clock(), 0, 0))
            if self._clock() - began >= INTERVAL_S:
                if held:
                    record.__dict__["fields"] = {**getattr(record, "fields", {}), "held_back": held}
                began, passed, held = self._clock(), 0, 0
            if key not in self._seen and len(self._seen) >= MOST_KINDS:
                self._seen.pop(min(self._seen, key=lambda known: self._seen[known][0]))
            passes = passed < LINES_PER_KIND
            self._seen[key] = (began, passed + 1, held) if passes else (began, passed, held + 1)
            return passes


class SaidOnce(logging.Filter):
    """Passes a standing warning once while it holds: the snapshot and the tail, in processes of their own, find the
    same tables that cannot be synced.
    """

    def __init__(self) -> None:
        super().__init__()
        # Code and place of the warnings in force -> their text. Written by any thread that logs, one step at a time.
        self._said: dict[tuple[object, object], str] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes."""
        notice = getattr(record, "notice", None) or {}
        if "clears" in notice:
            self._forget(lambda code, where: where == notice["where"])
        elif "only" in notice:
            self._forget(lambda code, where: code == notice["only"] and where not in notice["where"])
        elif notice.get("standing"):
            key, text = (notice["code"], notice["where"]), record.getMessage()
            if self._said.get(key) == text:
                return False
            self._said[key] = text
        return True

    def _forget(self, is_over: Callable[[object, object], bool]) -> None:
        for key in [key for key in list(self._said) if is_over(*key)]:
            self._said.pop(key, None)


def _is_said(record: logging.LogRecord) -> bool:
    """Whether a record is for people; some only say which warnings still hold."""
    return not (getattr(record, "notice", None) or {}).get("quiet")


class LineFormatter(logging.Formatter):
    """One line of JSON per record."""

    def format(self, record: logging.LogRecord) -> str:
        return encode(record)


def relay(handlers: Sequence[logging.Handler]) -> None:
    """Give all that this process logs to these handlers. May be called again: they replace the former ones.

    Whatever level the user asked for, INFO is let through here: that a warning is over is said at this level.
    """
    everything, own = _OWN_LOGGERS
    for log in _OWN_LOGGERS:
        log.handlers[:] = handlers
    everything.setLevel(logging.WARNING)
    own.setLevel(min(requested_level(), logging.INFO))
    own.propagate = False


def requested_level() -> int:
    """The level that the process which started this one passed on."""
    level = logging.getLevelNamesMapping().get((os.environ.get(LEVEL_VARIABLE) or "info").upper())
    return logging.INFO if level is None else level


def relay_to_standard_error(*others: logging.Handler) -> None:
    """Write records to standard error for the process that started this one, and give them to other handlers too.

    Only the lines go by the level that was asked for and are bounded: `others` hear of every record.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(requested_level())
    handler.setFormatter(LineFormatter())
    handler.addFilter(SaidOnce())
    handler.addFilter(_is_said)
    handler.addFilter(Bounded())
    relay([handler, *others])
