"""Warnings that hold for a while: logged and cleared by the code that has the problem, shown in `/statusz`.

`warn` logs a warning with its `code` and `where`, so that the same warning again is one warning that lasts. `clear`
ends it. The pipeline's process keeps them in a `WarningBook`, which writes them as a report next to the log; warnings
of Spark's Python workers reach it with their log lines.

What makes a warning current is one rule, `is_current`: it was not cleared, and was said within the last `WINDOW_S`
seconds or is a standing one. Those that are over are kept for `KEEP_S` seconds. A warning of a logger that knows
nothing of this (`log.warning("…")`) is identified by its logger and its text, and goes by the window alone.
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
"""What waits because of it: nothing, one table while the others go on, or all that follows."""


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
    """Log a warning that is known by its code and place. Say it again while it holds, unless it is `standing`: such a
    warning stays until it is cleared.
    """
    notice = {"code": code, "where": where, "fix": fix, "holds": holds, "standing": standing}
    all_fields = {"code": code, "where": where, **fields, "fix": fix or None}
    if log.isEnabledFor(logging.WARNING):
        known = {key: value for key, value in all_fields.items() if value is not None}
        log.log(logging.WARNING, message, extra={"fields": known, "notice": notice, "kind": f"{code} {where}"})


def clear(log: logging.Logger, code: str, where: str, message: str) -> None:
    """Say that a warning is over."""
    log.log(
        logging.INFO,
        message,
        extra={"fields": {"code": code, "where": where}, "notice": {"clears": code, "where": where}},
    )


def settle(log: logging.Logger, where: str) -> None:
    """Clear every warning about a place, also those of other processes. This is for the book and not for the log."""
    notice = {"clears": _ANY, "where": where, "quiet": True}
    log.log(logging.INFO, "all is well", extra={"fields": {"where": where}, "notice": notice})


class StandingWarnings:
    """Warnings of one code that hold together, one per place: what is no longer among them is over."""

    def __init__(self, log: logging.Logger, code: str) -> None:
        self._log = log
        self._code = code
        self._messages: dict[str, str] | None = None  # by place: those in force; None before the first time

    def set(self, messages: Mapping[str, str], fix: str = "") -> None:
        """All that hold now, by place. What was said already is not said again."""
        known = self._messages or {}
        if self._messages != messages:
            # Another process may have said some of them, so the book hears which are left, not which are over.
            notice = {"only": self._code, "where": list(messages), "quiet": True}
            self._log.log(logging.INFO, "warnings were looked at again", extra={"notice": notice})
        for where, message in messages.items():
            if known.get(where) != message:
                warn(self._log, self._code, where, message, fix, standing=True)
        self._messages = dict(messages)


@dataclass(frozen=True, slots=True)
class Warned:
    """One warning, from the first time it was said to the last. Times are epoch milliseconds; `cleared_ms` is 0 while
    it was not cleared.
    """

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
    """Whether a warning still holds, as far as is known."""
    return not warning.cleared_ms and (warning.standing or now_ms - warning.last_ms < WINDOW_S * 1000)


def read_report(report: Mapping[str, object] | None) -> list[Warned]:
    """The warnings that a report holds; entries of another version are passed over."""
    entries = (report or {}).get("warnings")
    warnings = []
    for entry in entries if isinstance(entries, list) else []:
        try:
            warnings.append(Warned(**entry))
        except TypeError:
            continue
    return warnings


class WarningBook(logging.Handler):
    """Keeps the warnings of a process tree, as a handler of its records, and leaves them as a report.

    Records come from any thread; one thread of its own writes, so that logging never waits for a disk or a database.
    Invariant: at most `MOST` warnings are kept; those that are over go first, then those said longest ago.
    """

    def __init__(self, reports: Reports, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._reports = reports
        self._clock = clock
        # By code and place, or by logger and kind of text. Guarded by the handler's lock.
        self._kept: dict[tuple[str, str], Warned] = {}
        self._turn = 0  # grows when a warning begins or ends: such a report is urgent
        self._is_changed = threading.Event()
        self._is_closed = threading.Event()
        self._restore()
        self._thread = threading.Thread(target=self._write_when_changed, name="changesource-warnings", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record in, if it is or clears a warning."""
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
        """Write what is not written yet, and end."""
        if not self._is_closed.is_set():
            self._is_closed.set()
            self._is_changed.set()
            self._thread.join(5.0)
        super().close()

    def warnings(self) -> list[Warned]:
        """All that are kept, the newest last."""
        self.acquire()
        try:
            return sorted(self._kept.values(), key=lambda warning: warning.last_ms)
        finally:
            self.release()

    def _restore(self) -> None:
        """What a former process left: it is over, and kept for a while."""
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
    """The reports of stages among all."""
    return {name: report for name, report in reports.items() if name != REPORT}


def warning_documents(warnings: Iterable[Warned], now: float) -> list[dict[str, object]]:
    """Warnings as `/statusz` shows them at a time in epoch seconds: current ones first, each by when it began."""
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
