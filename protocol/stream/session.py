"""One connection as a state machine, for either side; no I/O, no clock.

The producer calls `send` (or `begin` and `commit` around prepared frames) before it writes, and `receive` with each
message that arrives. The consumer calls `receive` with each message that arrives, `durable` when commits are stored,
and sends what `acks` returns. Both raise `SessionError` or `CodecError` on the first message that is not allowed; the
connection must then end.

Acks are cumulative and are never matched one to one with commits: later releases of zero-cache coalesce them, drop
their payload, and after a reconnect may acknowledge what the previous connection sent.
"""

from collections import deque
from dataclasses import dataclass, replace

from protocol import codec
from protocol.codec import AnyDownstream, AnyUpstream
from protocol.errors import SessionError
from protocol.messages import Ack, AckRequested, Begin, Commit, ResetRequired, Status, StatusAck
from protocol.stream.handshake import Handshake
from protocol.stream.order import Problem, Stream, acknowledged_by


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """All up to and including `watermark` is durable at the consumer, which was not known before."""

    watermark: str


@dataclass(frozen=True, slots=True)
class Repeated:
    """An ack that is not ahead of an earlier one; to be ignored."""

    watermark: str


@dataclass(frozen=True, slots=True)
class Premature:
    """An ack beyond what this connection sent: left over from a previous one, or a fault. To be ignored."""

    watermark: str


HARMLESS = frozenset({"initial-status", "status-order"})
"""Rules that a source should keep but a consumer need not enforce: zero-cache takes no notice either."""

AckEvent = Acknowledged | Repeated | Premature


class ProducerSession:
    """The endpoint's side. `acked` only grows, and never beyond what was sent here or known at connect."""

    def __init__(self, handshake: Handshake) -> None:
        self._stream = Stream(handshake)
        # The highest watermark the consumer may acknowledge: sent here, or known at connect.
        self._reached = handshake.last_watermark
        # The highest watermark it has acknowledged; written by `receive`.
        self.acked = handshake.last_watermark

    @property
    def in_transaction(self) -> bool:
        """Whether a begin was sent without its end."""
        return self._stream.open is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing more may be sent: an initial sync in the shipped dialect is complete."""
        return self._stream.is_over

    @property
    def sent(self) -> str | None:
        """The last commit sent, or known at connect."""
        return self._stream.last

    def send(self, message: AnyDownstream) -> bytes:
        """The bytes of a message that may be sent now."""
        _refuse(self._stream.problems(message), message.name)
        data = codec.encode(message)
        self._stream.advance(message)
        self._reach(acknowledged_by(message))
        return data

    def begin(self, commit_watermark: str) -> None:
        """A prepared transaction is about to be written."""
        _refuse(self._stream.begin_problems(commit_watermark), "begin")
        self._stream.begin(commit_watermark)

    def commit(self) -> None:
        """The prepared transaction was written to its end."""
        committed = self._stream.open
        if committed is None:
            raise SessionError("commit without a begin before it", where="commit", rule="commit-outside")
        self._stream.commit(committed)
        self._reach(committed)

    def receive(self, data: bytes | str) -> AckEvent:
        """Read an ack of the consumer."""
        acked = codec.decode_upstream(data).watermark
        if self.acked is not None and acked <= self.acked:
            return Repeated(acked)
        if self._reached is None or acked > self._reached:
            return Premature(acked)
        self.acked = acked
        return Acknowledged(acked)

    def _reach(self, reached: str | None) -> None:
        self._reached = max((each for each in (self._reached, reached) if each is not None), default=None)


class ConsumerSession:
    """The cache's side. `last_watermark` is the last durable commit: what the next connection resumes after."""

    def __init__(self, handshake: Handshake) -> None:
        self._handshake = handshake
        self._stream = Stream(handshake)
        # The watermark of the initial sync's commit, once received here.
        self._initial_commit: str | None = None
        # Whether the open transaction asks for no ack.
        self._skips_ack = False
        # Acks in order, each with the commit that must be durable first (None: no commit).
        self._waiting: deque[tuple[str | None, AnyUpstream]] = deque()
        # The last durable commit; raised by `durable`.
        self.last_watermark = handshake.last_watermark
        # The version of the initial sync; written by `durable` when that is durable, in the shipped dialect.
        self.replica_version = handshake.replica_version
        # The source's `reset-required`, once received.
        self.reset: ResetRequired | None = None

    @property
    def is_over(self) -> bool:
        """Whether the initial sync is complete and the connection to be closed, for `reconnect`."""
        return self._stream.is_over

    def receive(self, data: bytes | str) -> AnyDownstream:
        """The next message, with its shape, order and watermark checked. A status that has no effect is allowed."""
        message = codec.decode_downstream(data)
        _refuse([each for each in self._stream.problems(message) if each.rule not in HARMLESS], message.name)
        was_initial = self._stream.initial
        self._stream.advance(message)
        self._take(message, was_initial)
        return message

    def durable(self, committed: str) -> None:
        """The commit `committed` and all before it are safe; their acks are due."""
        if committed == self._initial_commit and self._handshake.dialect == "shipped":
            self.replica_version = committed
        self.last_watermark = max(self.last_watermark or committed, committed)

    def acks(self) -> list[bytes]:
        """The acks that are due, to be sent in this order; each is returned once."""
        due = []
        while self._waiting and self._is_durable(self._waiting[0][0]):
            due.append(codec.encode(self._waiting.popleft()[1]))
        return due

    def reconnect(self) -> Handshake:
        """The handshake of the next connection: after the last durable commit, or from scratch after a reset."""
        if self.reset is not None:
            return replace(self._handshake, last_watermark=None, replica_version=None)
        return replace(self._handshake, last_watermark=self.last_watermark, replica_version=self.replica_version)

    def _take(self, message: AnyDownstream, was_initial: bool) -> None:
        match message:
            case Begin():
                self._skips_ack = bool(message.skip_ack)
            case Commit():
                self._take_commit(message, was_initial)
            case Status() if message.wants_ack and not was_initial:
                self._waiting.append((self._stream.last, self._ack_of(message)))
            case AckRequested() if message.latest_upstream_watermark is not None:
                self._waiting.append((self._stream.last, Ack(watermark=message.latest_upstream_watermark)))
            case ResetRequired():
                self.reset = message
            case _:
                pass

    def _take_commit(self, message: Commit, was_initial: bool) -> None:
        if was_initial:
            self._initial_commit = message.watermark
        if not self._skips_ack and not self._stream.is_over:
            self._waiting.append((message.watermark, self._ack_of(message)))

    def _ack_of(self, message: Commit | Status) -> AnyUpstream:
        if self._handshake.dialect == "sketch":
            return Ack(watermark=message.watermark)
        return status_ack(message)

    def _is_durable(self, needed: str | None) -> bool:
        return needed is None or (self.last_watermark is not None and needed <= self.last_watermark)


def status_ack(message: Commit | Status) -> StatusAck:
    """The acknowledgement of a message in the shipped dialect: zero-cache sends it back, as a status."""
    filled = {"ack": True} if isinstance(message, Status) else {}
    return StatusAck.model_validate(filled | message.to_json())


def _refuse(problems: list[Problem], name: str) -> None:
    if problems:
        raise SessionError(problems[0].message, where=name, rule=problems[0].rule)
