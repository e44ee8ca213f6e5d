"""Warnings that last: logged and cleared by the code that has the problem, shown in `/statusz`.

`warn` logs a warning with a `code` and a `where`; the same two again are the same warning. `clear` ends it. The
pipeline's process has all of them in a `WarningBook`, which writes them as a report next to the log; warnings of
Spark's Python workers reach it with their log lines.

A warning is current (`is_current`) until it is cleared, or until it was not repeated for `WINDOW_S` seconds. A
*standing* warning need not be repeated. Past warnings are kept for `KEEP_S` seconds. A warning of an ordinary logger
(`log.warning("…")`) is identified by its logger and its text, and nothing clears it but the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from changesource_sdk.changelog.coordination.reports import Reports
from changesource_sdk.observe.relayed import kind_of
from service_kit.logs import LOGGER_NAME

REPORT = "warnings"
"""The name of their report among those of the stages."""
NEW_SNAPSHOT = "new-snapshot"
"""The code of the warning that the upstream is read again, and why."""
NOT_SYNCED = "not-synced"
"""The code of warnings about tables and columns that are left out."""
WINDOW_S = 300.0
KEEP_S = 3600.0
MOST = 50
WRITE_EVERY_S = 0.5

_ANY = "*"
Holds = Literal["", "table", "stream"]
"""What waits because of it: nothing, one table while the others continue, or the whole stream."""


def warn(
    log: logging.Logger,
    code: str,
    where: str,
    message: str,
    fix: str = "",
    *,
    holds: Holds = "",
    standing: bool = False,
    **fields: object,
) -> None:
    """Log a warning, which `code` and `where` identify. Call it again while the problem lasts, at least every
    `WINDOW_S` seconds, unless the warning is `standing`: such a one stays until it is cleared.
    """
    notice = {"code": code, "where": where, "fix": fix, "holds": holds, "standing": standing}
    all_fields = {"code": code, "where": where, **fields, "fix": fix or None}
    if log.isEnabledFor(logging.WARNING):
        known = {key: value for key, value in all_fields.items() if value is not None}
        log.log(logging.WARNING, message, extra={"fields": known, "notice": notice, "kind": f"{code} {where}"})


def clear(log: logging.Logger, code: str, where: str, message: str) -> None:
    """End a warning, and log `message` at INFO."""
    log.log(
        logging.INFO,
        message,
        extra={"fields": {"code": code, "where": where}, "notice": {"clears": code, "where": where}},
    )


def settle(log: logging.Logger, where: str) -> None:
    """Clear every warning with this `where`, also those of other processes, without a line in the log."""
    notice = {"clears": _ANY, "where": where, "quiet": True}
    log.log(logging.INFO, "all is well", extra={"fields": {"where": where}, "notice": notice})


class StandingWarnings:
    """The standing warnings of one code, at most one for each `where`. `set` replaces all. For one thread."""

    def __init__(self, log: logging.Logger, code: str) -> None:
        self._log = log
        self._code = code
        self._messages: dict[str, str] | None = None  # by `where`: those of the last `set`; None before the first

    def set(self, messages: Mapping[str, str], fix: str = "") -> None:
        """Warn with these messages, by `where`, and clear all others of the code. A message is logged once only."""
        known = self._messages or {}
        if self._messages != messages:
            # Another process may have logged some of them, so the book is sent those that are left, not those to clear.
            notice = {"only": self._code, "where": list(messages), "quiet": True}
            self._log.log(logging.INFO, "standing warnings were checked again", extra={"notice": notice})
        for where, message in messages.items():
            if known.get(where) != message:
                warn(self._log, self._code, where, message, fix, standing=True)
        self._messages = dict(messages)


@dataclass(frozen=True, slots=True)
class Warned:
    """One warning, logged `count` times. Times are epoch milliseconds; `cleared_ms` is 0 if it was not cleared."""

    code: str
    where: str
    message: str
    fix: str
    source: str
    level: str
    holds: Holds
    standing: bool
    count: int
    first_ms: float
    last_ms: float
    cleared_ms: float = 0.0


def is_current(warning: Warned, now_ms: float) -> bool:
    """Whether a warning was not cleared, and is standing or was logged within the last `WINDOW_S` seconds."""
    return not warning.cleared_ms and (warning.standing or now_ms - warning.last_ms < WINDOW_S * 1000)


def read_report(report: Mapping[str, object] | None) -> list[Warned]:
    """Return the warnings of a report; entries of another version are skipped."""
    entries = (report or {}).get("warnings")
    warnings = []
    for entry in entries if isinstance(entries, list) else []:
        try:
            warnings.append(Warned(**entry))
        except TypeError:
            continue
    return warnings


class WarningBook(logging.Handler):
    """Keeps the warnings of a process tree: it handles their log records and writes the report `REPORT`.

    Records come from any thread; a separate thread writes, so that logging never waits for a disk or a database.
    Invariant: at most `MOST` warnings are kept. Past ones are dropped first, then those logged longest ago.
    """

    def __init__(self, reports: Reports, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._reports = reports
        self._clock = clock
        # By code and `where`, or by logger and kind of text. Guarded by the handler's lock.
        self._kept: dict[tuple[str, str], Warned] = {}
        self._turn = 0  # increased when a warning begins or ends: `Reports` writes such a report at once
        self._is_changed = threading.Event()
        self._is_closed = threading.Event()
        self._restore()
        self._thread = threading.Thread(target=self._write_when_changed, name="changesource-warnings", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Add or clear a warning, if the record is one or clears one."""
        notice = getattr(record, "notice", None) or {}
        if "clears" in notice:
            for code, where in list(self._kept):
                if where == notice["where"] and notice["clears"] in (code, _ANY):
                    self._clear((code, where), record.created * 1000)
        elif "only" in notice:
            for code, where in list(self._kept):
                if code == notice["only"] and where not in notice["where"]:
                    self._clear((code, where), record.created * 1000)
        elif record.levelno >= logging.WARNING:
            self._add(record, notice)

    def close(self) -> None:
        """Write what is not written yet, for at most five seconds, and end the thread."""
        if not self._is_closed.is_set():
            self._is_closed.set()
            self._is_changed.set()
            self._thread.join(5.0)
        super().close()

    def warnings(self) -> list[Warned]:
        """Return all that are kept, the newest last."""
        self.acquire()
        try:
            return sorted(self._kept.values(), key=lambda warning: warning.last_ms)
        finally:
            self.release()

    def _restore(self) -> None:
        """Read the report of a former process. Its warnings are cleared, and kept as past ones."""
        now_ms = self._clock() * 1000
        for warning in read_report(self._reports.all().get(REPORT)):
            key = (warning.code or warning.source, warning.where or warning.message)
            self._kept[key] = replace(warning, cleared_ms=warning.cleared_ms or now_ms)
        if self._kept:
            self._turn += 1
            self._is_changed.set()

    def _add(self, record: logging.LogRecord, notice: Mapping[str, object]) -> None:
        source = record.name.removeprefix(LOGGER_NAME + ".")
        code, where = str(notice.get("code") or ""), str(notice.get("where") or "")
        key = (code, where) if code else (source, kind_of(record))
        now_ms = record.created * 1000
        known = self._kept.get(key)
        is_new = known is None or not is_current(known, now_ms)
        fields = getattr(record, "fields", {})
        shown = {name: value for name, value in fields.items() if name not in notice}
        message = record.getMessage() + "".join(f" {name}={value}" for name, value in shown.items())
        self._kept[key] = Warned(
            code,
            where,
            message[:1000],
            str(notice.get("fix") or ""),
            source,
            record.levelname.lower(),
            notice.get("holds") or "",  # type: ignore[arg-type]
            bool(notice.get("standing")),
            1 if known is None or is_new else known.count + 1,
            now_ms if known is None or is_new else known.first_ms,
            now_ms,
        )
        self._turn += is_new
        self._forget(now_ms)
        self._is_changed.set()

    def _clear(self, key: tuple[str, str], now_ms: float) -> None:
        known = self._kept.get(key)
        if known is not None and not known.cleared_ms:
            self._kept[key] = replace(known, cleared_ms=now_ms)
            self._turn += 1
            self._is_changed.set()

    def _forget(self, now_ms: float) -> None:
        for key, warning in list(self._kept.items()):
            if not is_current(warning, now_ms) and now_ms - warning.last_ms > KEEP_S * 1000:
                del self._kept[key]
        if len(self._kept) > MOST:
            order = sorted(self._kept, key=lambda key: (is_current(self._kept[key], now_ms), self._kept[key].last_ms))
            for key in order[: len(self._kept) - MOST]:
                del self._kept[key]

    def _write_when_changed(self) -> None:
        while not self._is_closed.is_set():
            self._is_changed.wait()
            self._is_changed.clear()
            self._write()
            self._is_closed.wait(WRITE_EVERY_S)
        if self._is_changed.is_set():
            self._write()

    def _write(self) -> None:
        report: dict[str, object] = {
            "warnings": [asdict(warning) for warning in self.warnings()],
            "urgent": self._turn,
            "updated_ms": self._clock() * 1000,
        }
        self._reports.leave(REPORT, report)


def stages_only(reports: Mapping[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """Return the reports of stages, without that of the warnings."""
    return {name: report for name, report in reports.items() if name != REPORT}


def warning_documents(warnings: Iterable[Warned], now: float) -> list[dict[str, object]]:
    """Return warnings as `/statusz` shows them at `now` (epoch seconds): current ones first, then by their start."""
    shown = sorted(warnings, key=lambda warning: (not is_current(warning, now * 1000), warning.first_ms))
    return [
        {
            "code": warning.code or None,
            "where": warning.where or None,
            "message": warning.message,
            "fix": warning.fix or None,
            "source": warning.source,
            "level": warning.level,
            "holds": warning.holds or None,
            "count": warning.count,
            "age": now - warning.first_ms / 1000,
            "lastSaid": now - warning.last_ms / 1000,
            "current": is_current(warning, now * 1000),
        }
        for warning in shown
        if is_current(warning, now * 1000) or now * 1000 - max(warning.last_ms, warning.cleared_ms) < KEEP_S * 1000
    ]
