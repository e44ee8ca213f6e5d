"""The order of one downstream: which message may follow which, and which watermark may follow which.

Used by both sides (`session`) and by the checker (`rules`). `problems` compares a message with the stream so far and
changes nothing; `advance` applies it. A side stops at the first problem; the checker notes it and continues.

    ( begin data* (commit | rollback) | status | control )*
"""

from dataclasses import dataclass

from protocol import watermark
from protocol.codec import AnyDownstream
from protocol.errors import WatermarkError
from protocol.messages import AckRequested, Begin, Commit, Data, ResetRequired, Rollback, Status
from protocol.stream.handshake import Handshake


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule, by its id in `rules.RULES`, and what broke it."""

    rule: str
    message: str


def acknowledged_by(message: AnyDownstream) -> str | None:
    """The watermark that a consumer may acknowledge because of this message."""
    match message:
        case Commit() | Status():
            return message.watermark
        case AckRequested():
            return message.latest_upstream_watermark
        case _:
            return None


class Stream:
    """One connection. `advance`, `begin` and `commit` change it."""

    __slots__ = ("dialect", "initial", "is_over", "last", "open")

    def __init__(self, handshake: Handshake) -> None:
        self.dialect = handshake.dialect
        # True until the initial sync has been committed; False from the start in a stream that resumes.
        self.initial = handshake.is_initial
        # True once nothing more may come on this connection.
        self.is_over = False
        # The highest commit; never decreases.
        self.last = handshake.last_watermark
        # The watermark that the open transaction announced; None between transactions.
        self.open: str | None = None

    def problems(self, message: AnyDownstream) -> list[Problem]:
        """What forbids `message` here; nothing if it may come."""
        if self.is_over:
            return [Problem("after-initial", f"{message.name} after the commit of the initial sync is lost")]
        match message:
            case Begin():
                return self.begin_problems(message.commit_watermark)
            case Commit():
                return self._commit_problems(message.watermark)
            case Data():
                return self._inside("data")
            case Rollback():
                return self._rollback_problems()
            case Status():
                return self._status_problems(message.watermark)
            case ResetRequired() if self.initial:
                return [Problem("initial-reset", "reset-required during an initial sync, which is already a reset")]
            case AckRequested() if self.dialect == "shipped":
                return [Problem("ack-requested", "ack-requested to a consumer of the shipped dialect")]
            case _:
                return []

    def advance(self, message: AnyDownstream) -> None:
        """Apply `message`, allowed or not."""
        match message:
            case Begin():
                self.begin(message.commit_watermark)
            case Commit():
                self.commit(message.watermark)
            case Rollback():
                self.open = None
            case _:
                pass

    def begin(self, commit_watermark: str) -> None:
        """A transaction begins."""
        self.open = commit_watermark

    def commit(self, committed: str) -> None:
        """The transaction ends; an initial sync ends with it, and for the shipped dialect the connection too."""
        self.open = None
        self.last = committed if self.last is None else max(self.last, committed)
        self.is_over = self.is_over or (self.initial and self.dialect == "shipped")
        self.initial = False

    def begin_problems(self, commit_watermark: str) -> list[Problem]:
        """What forbids a transaction with this watermark here."""
        problems = _form_problems(commit_watermark)
        if self.is_over:
            problems.append(Problem("after-initial", "a transaction after the initial sync is lost"))
        if self.open is not None:
            problems.append(Problem("begin-inside", f"begin while the transaction {self.open} is open"))
        if self.last is not None and commit_watermark <= self.last:
            problems.append(Problem("watermark-order", f"{commit_watermark} is not above {self.last}"))
        return problems

    def _commit_problems(self, committed: str) -> list[Problem]:
        if self.open is not None and committed != self.open:
            return [Problem("commit-watermark", f"commit says {committed}, its begin said {self.open}")]
        return self._inside("commit")

    def _rollback_problems(self) -> list[Problem]:
        if self.initial:
            return [Problem("initial-rollback", "rollback during an initial sync")]
        return self._inside("rollback")

    def _status_problems(self, reached: str) -> list[Problem]:
        if self.initial:
            return [Problem("initial-status", "status during an initial sync is ignored")]
        if self.open is not None:
            return [Problem("status-inside", f"status while the transaction {self.open} is open")]
        if self.last is not None and reached < self.last:
            return [Problem("status-order", f"status {reached} is below the commit {self.last}")]
        return _form_problems(reached)

    def _inside(self, name: str) -> list[Problem]:
        return [] if self.open is not None else [Problem(f"{name}-outside", f"{name} without a begin before it")]


def _form_problems(text: str) -> list[Problem]:
    try:
        watermark.validate(text)
    except WatermarkError as error:
        return [Problem("watermark-form", error.message)]
    return []
