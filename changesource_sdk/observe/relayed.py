"""Log records that one process sends to another, whose log the user reads.

A record is one line of JSON: on standard error from the pipeline's process to `serve`, on a socket from Spark's Python
workers to their driver (`log_socket`). Records of every logger are relayed at the level that the user chose, so that an
adapter's author may use any logger. Only libraries that are known to say much (`LIBRARIES`) are relayed from WARNING
on. `Bounded` keeps a flood of one kind short.
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
LINES_PER_QUIET_KIND = 100
"""The same for records below WARNING of loggers that are not this package's; its own are not bounded."""
LIBRARIES = (
    "aiobotocore", "asyncio", "boto3", "botocore", "concurrent", "deltalake", "fsspec", "kafka", "matplotlib", "numba",
    "psycopg", "py4j", "pyarrow", "pyiceberg", "pyspark", "s3fs", "sqlalchemy", "urllib3", "websockets",
)  # fmt: skip
INTERVAL_S = 60.0
MOST_KINDS = 256
LONGEST_TEXT = 4000
LONGEST_TRACE = 20_000

_OWN_LOGGERS: list[logging.Logger] = [logging.getLogger(), logging.getLogger(LOGGER_NAME)]


def encode(record: logging.LogRecord) -> str:
    """Return a record as one line, without secrets."""
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
    """Return the record of a line; None if the line is not one of `encode`."""
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
    """Return a text that is the same for records that differ in their values only."""
    return str(getattr(record, "kind", None) or record.msg)[:LONGEST_TEXT]


class Bounded(logging.Filter):
    """Passes so many records of each kind per interval; the rest is counted. This package's own below WARNING all pass.

    Records below WARNING always pass; those that clear a warning are among them. Threads may share it. Invariant: at
    most `MOST_KINDS` kinds are in memory.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        # By logger and kind: when the interval began, lines passed in it, lines held back in it.
        self._seen: dict[tuple[str, str], tuple[float, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes."""
        is_own = record.name == LOGGER_NAME or record.name.startswith(f"{LOGGER_NAME}.")
        is_quiet = record.levelno < logging.WARNING
        if is_quiet and is_own:
            return True
        # Texts of other packages are not known to be templates: all that one of their loggers says is one kind.
        key = (f"{record.name} {record.levelname}" if is_quiet else record.name, kind_of(record) if is_own else "")
        most = LINES_PER_QUIET_KIND if is_quiet else LINES_PER_KIND
        with self._lock:
            began, passed, held = self._seen.get(key, (self._clock(), 0, 0))
            if self._clock() - began >= INTERVAL_S:
                if held:
                    record.__dict__["fields"] = {**getattr(record, "fields", {}), "held_back": held}
                began, passed, held = self._clock(), 0, 0
            if key not in self._seen and len(self._seen) >= MOST_KINDS:
                self._seen.pop(min(self._seen, key=lambda known: self._seen[known][0]))
            passes = passed < most
            self._seen[key] = (began, passed + 1, held) if passes else (began, passed, held + 1)
            return passes


class SaidOnce(logging.Filter):
    """Passes a standing warning once while it is current: the snapshot and the tail are different processes and both
    warn of the same tables that cannot be synced.
    """

    def __init__(self) -> None:
        super().__init__()
        # Texts of the current standing warnings, by code and `where`. Any thread that logs writes it, with operations
        # on a dict that are atomic.
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
    """Whether a record is for the log; some are only for the `WarningBook`."""
    return not (getattr(record, "notice", None) or {}).get("quiet")


class LineFormatter(logging.Formatter):
    """One line of JSON per record."""

    def format(self, record: logging.LogRecord) -> str:
        return encode(record)


def relay(handlers: Sequence[logging.Handler]) -> None:
    """Give all that this process logs to these handlers. May be called again: they replace the former ones.

    The level is INFO even if the user asked for less, because a record that clears a warning has this level.
    """
    everything, own = _OWN_LOGGERS
    for log in _OWN_LOGGERS:
        log.handlers[:] = handlers
    everything.setLevel(requested_level())
    for name in LIBRARIES:
        library = logging.getLogger(name)
        # One that an author has set stays as it is.
        if library.level == logging.NOTSET:
            library.setLevel(logging.WARNING)
    own.setLevel(min(requested_level(), logging.INFO))
    own.propagate = False


def requested_level() -> int:
    """Return the log level that the parent process passed in the environment; INFO by default."""
    level = logging.getLevelNamesMapping().get((os.environ.get(LEVEL_VARIABLE) or "info").upper())
    return logging.INFO if level is None else level


def relay_to_standard_error(*others: logging.Handler) -> None:
    """Write records to standard error for the parent process, and give them to other handlers too.

    The lines are limited to the requested level and by `Bounded`; `others` get every record.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(requested_level())
    handler.setFormatter(LineFormatter())
    handler.addFilter(SaidOnce())
    handler.addFilter(_is_said)
    handler.addFilter(Bounded())
    relay([handler, *others])
