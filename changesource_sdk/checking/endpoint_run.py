"""One check of one endpoint: its limits, what was seen so far, and which rules were broken.

The cases (`endpoint_cases`) share it: the others continue from the snapshot that the first one receives. Contract:
within a case, findings are collected per rule, the first few with their frames and the rest as a count; time is bounded
by the deadline of the whole run and by `patience` for a single answer. An answer that the deadline cut off breaks no
rule.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from changesource_sdk.checking.connecting import Refused
from changesource_sdk.checking.folded_rows import FoldedRows
from changesource_sdk.checking.probe_stream import (
    FrameLog,
    ProbeStream,
    SeenTransaction,
    Silent,
    StreamClosed,
    probe,
)
from changesource_sdk.checking.verdict import Finding
from changesource_sdk.errors import EndpointError
from protocol.messages import Commit, Data, ResetRequired
from protocol.rules import Checker
from protocol.stream.handshake import Dialect, Handshake

APP = "changesource_check"
AFTERTHOUGHT_SECONDS = 0.2
MOST_PER_RULE = 3
ANSWERS_DUE = frozenset(
    {"answers", "answers-pings", "initial-complete", "whole-transaction", "resume-complete", "unknown-reset"}
)
"""Expectations that are broken when nothing arrives in time."""


class CaseStopped(Exception):
    """A case cannot continue because of a broken rule; the finding has been noted."""


class NotSeen(Exception):
    """A case could not be exercised, and why."""


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """What to check, and for how long. Times are in seconds: `seconds` for the whole check, `watch` for listening to a
    live stream, `patience` for one answer.
    """

    url: str
    app_id: str = APP
    shard_num: int = 0
    seconds: float = 60.0
    watch: float = 3.0
    patience: float = 10.0
    resets: bool = False
    acks: bool = True


@dataclass(frozen=True, slots=True)
class ReceivedSnapshot:
    """A snapshot as a consumer has it, and the checker that knows its tables."""

    watermark: str
    rows: FoldedRows
    checker: Checker


@dataclass(slots=True)
class EndpointRun:
    """The state of a check."""

    settings: CheckSettings
    log: FrameLog = field(default_factory=FrameLog)
    # Reports progress; `check_endpoint` sets it for each case.
    report_progress: Callable[[str], None] = lambda text: None
    # What the case "initial sync" received; None before it.
    snapshot: ReceivedSnapshot | None = None
    # The transactions after `snapshot`, in order, as first seen. Written by the cases "live stream" and "seam".
    history: list[SeenTransaction] = field(default_factory=list)
    # Of the current case, by rule. Written by `note`, emptied by `check_endpoint`.
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    # On the monotonic clock.
    _deadline: float = 0.0

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.settings.seconds

    @property
    def left(self) -> float:
        """Seconds until the run must end."""
        return max(self._deadline - time.monotonic(), 0.0)

    @property
    def patience(self) -> float:
        """How long to wait for one answer, now."""
        return min(self.settings.patience, self.left)

    def note(self, finding: Finding) -> None:
        """Keep a finding of the current case."""
        same = self.findings.setdefault(finding.rule, [])
        if len(same) < MOST_PER_RULE:
            same.append(finding)
        else:
            same[-1] = replace(same[-1], times=same[-1].times + 1)

    def broken(self, rule: str, message: str) -> CaseStopped | NotSeen:
        """Note an expectation that is not met; the caller raises the result if the case cannot continue."""
        if rule in ANSWERS_DUE and not self.left:
            return NotSeen(f"the {self.settings.seconds:g} s were over: give --seconds more")
        self.note(Finding(rule, message, self.log.count))
        return CaseStopped(message)

    def handshake(self, last: str | None = None, version: str | None = None, dialect: Dialect = "shipped") -> Handshake:
        """A request of this check's consumer."""
        settings = self.settings
        return Handshake(
            dialect, settings.app_id, settings.shard_num, last_watermark=last, replica_version=version or last
        )

    @asynccontextmanager
    async def connect(
        self, handshake: Handshake, checker: Checker | None = None, *, is_optional: bool = False
    ) -> AsyncIterator[ProbeStream]:
        """A stream. A failure is a finding, unless the connection is the first (raised) or optional (`NotSeen`)."""
        is_first = self.log.count == 0
        settings = self.settings
        try:
            async with probe(
                settings.url,
                handshake,
                self.log,
                self.note,
                seconds=self.patience,
                checker=checker,
                acknowledges=settings.acks,
            ) as stream:
                yield stream
        except EndpointError as error:
            if is_first:
                raise
            if is_optional and isinstance(error, Refused):
                raise NotSeen(f"{error.message}; no released zero-cache speaks it") from None
            raise self.broken("answers", error.message) from None

    async def initial_sync(self, handshake: Handshake, checker: Checker | None = None) -> ReceivedSnapshot:
        """Read a snapshot to its commit, and a moment longer, because nothing may follow."""
        judge = checker or Checker()
        async with self.connect(handshake, judge) as stream:
            watermark, rows = await self.snapshot_of(stream)
            if handshake.dialect == "shipped":
                await self._nothing_more(stream)
        return ReceivedSnapshot(watermark, rows, judge)

    async def snapshot_of(self, stream: ProbeStream) -> tuple[str, FoldedRows]:
        """The snapshot at the start of a stream."""
        rows, count = FoldedRows(), 0
        try:
            while True:
                match await stream.next(self.left if count == 0 else self.patience):
                    case Data(change=change):
                        rows.take(change)
                    case Commit(watermark=watermark):
                        return watermark, rows
                    case ResetRequired():
                        raise self.broken("initial-reset", "reset-required instead of a snapshot")
                    case _:
                        pass
                count += 1
                if count % 10_000 == 0:
                    self.report_progress(f"{count} messages")
        except Silent:
            reason = f"no commit after {count} messages, and then nothing for {self.patience:.0f} s"
            raise self.broken("initial-complete", reason) from None
        except StreamClosed as error:
            raise self.broken("initial-complete", f"closed after {count} messages: {error}") from None

    @staticmethod
    async def _nothing_more(stream: ProbeStream) -> None:
        try:
            while True:
                await stream.next(AFTERTHOUGHT_SECONDS)
        except (Silent, StreamClosed):
            return

    async def watch(self, stream: ProbeStream, most: int) -> list[SeenTransaction]:
        """Transactions that arrive within `settings.watch` seconds; never stops in the middle of one."""
        seen: list[SeenTransaction] = []
        until = time.monotonic() + min(self.settings.watch, self.left)
        try:
            while len(seen) < most and (time_left := until - time.monotonic()) > 0:
                seen.append(await self.transaction(stream, time_left))
        except Silent:
            pass
        return seen

    async def transaction(self, stream: ProbeStream, seconds: float) -> SeenTransaction:
        """The next transaction; one that begins and does not end is a finding."""
        try:
            return await stream.transaction(seconds, self.patience)
        except Silent:
            if stream.open is None:
                raise
            reason = f"{len(stream.open)} changes after begin, then nothing for {self.patience:.0f} s"
            raise self.broken("whole-transaction", reason) from None
        except StreamClosed:
            if stream.open is None:
                raise
            reason = f"closed after {len(stream.open)} changes of a transaction"
            raise self.broken("whole-transaction", reason) from None
