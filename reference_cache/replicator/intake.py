"""Applies the messages of one connection to the replica; no network and no clock.

`LiveIntake` processes the stream of transactions, `InitialIntake` the one transaction of an initial sync. Both take
every message in order and raise on the first that the protocol does not allow or that does not fit the replica. The
caller must then close the connection and call `abort`.

A live transaction is held in memory until its end arrives, so that several small ones can become durable together
(`flush`); a large one is written while it arrives. An acknowledgement is sent after the flush, and only the newest one,
because they are cumulative. A transaction that the replica already has is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from protocol import codec
from protocol.codec import AnyDownstream
from protocol.errors import SessionError
from protocol.messages import Begin, Commit, Data, ResetRequired, Rollback, Status
from protocol.stream import Stream
from protocol.stream.handshake import Handshake
from protocol.stream.session import HARMLESS, status_ack
from reference_cache.replica.errors import CannotApply
from reference_cache.replica.writing.initial_load import InitialLoad
from reference_cache.replica.writing.writer import ReplicaWriter
from reference_cache.replicator.bound_frames import BoundFrames
from reference_cache.replicator.row_frames import DATA, RowFrames

HELD_BYTES = 1 << 20
"""A transaction larger than this is not held in memory but written while it arrives."""


class Handling(Enum):
    """What is done with the data of the open transaction."""

    HOLD = auto()
    """Held in memory until the commit."""
    WRITE = auto()
    """It became large: written while it arrives. Nothing else can be flushed until it ends."""
    SKIP = auto()
    """The replica already has it, so it is only acknowledged again."""


# Accessed for every message; an attribute of an Enum class is slow in Python 3.11.
_HOLD, _WRITE, _SKIP = Handling.HOLD, Handling.WRITE, Handling.SKIP


class _Intake:
    """Checks the order of the messages; common to both kinds. `_stream.open` is set while a transaction is open."""

    def __init__(self, handshake: Handshake) -> None:
        self._stream = Stream(handshake)
        self._frames = RowFrames()

    def _receive(self, data: bytes) -> AnyDownstream:
        """Decode a message and check that it may come now; the caller then advances the stream."""
        message = codec.decode_downstream(data)
        for problem in self._stream.problems(message):
            if problem.rule not in HARMLESS and not self._may_pass(message, problem.rule):
                raise SessionError(problem.message, where=message.name, rule=problem.rule)
        return message

    def _may_pass(self, message: AnyDownstream, rule: str) -> bool:
        return False


class InitialIntake(_Intake):
    """Loads an initial sync. `former_version` is the replica version before a reset, which must not come again."""

    def __init__(self, handshake: Handshake, load: InitialLoad, former_version: str | None) -> None:
        super().__init__(handshake)
        # Whether the commit has arrived.
        self.is_complete = False
        self._load = load
        self._former_version = former_version

    def take(self, batch: Sequence[bytes]) -> None:
        """Process the next messages; raises `ProtocolError` or `CannotApply`."""
        index, end = 0, len(batch)
        while index < end:
            is_open = self._stream.open is not None
            count = self._frames.apply_inserts(batch, index, self._load) if is_open else 0
            if not count:
                self._take(batch[index])
            index += count or 1

    def _take(self, data: bytes) -> None:
        if self._stream.open is not None and data.startswith(DATA):
            self._frames.apply(data, self._load)
            return
        message = self._receive(data)
        match message:
            case Begin():
                self._begin(message)
            case Commit():
                self.is_complete = True
            case Data():
                self._frames.apply(data, self._load)
            case ResetRequired():
                raise SessionError("reset-required during an initial sync", where="control", rule="initial-reset")
            case _:
                pass
        self._stream.advance(message)

    def _begin(self, message: Begin) -> None:
        if message.commit_watermark == self._former_version:
            raise CannotApply(
                f"after a reset the source sent the snapshot {self._former_version} again; it must send a newer one"
            )
        self._load.begin(message.commit_watermark, message.json_mode or "p")


class LiveIntake(_Intake):
    """Applies live transactions.

    Invariant: `_held` are the messages of the open transaction that are not written; of a transaction in state `WRITE`,
    all earlier ones are.
    """

    def __init__(self, handshake: Handshake, writer: ReplicaWriter) -> None:
        super().__init__(handshake)
        # Set when the source sends `reset-required`; cleared by the replicator when it has acted on it.
        self.reset: ResetRequired | None = None
        # Commit time upstream of the last transaction, in milliseconds; None if the source does not send it.
        self.commit_time_ms: float | None = None
        # Transactions applied since the last `take_count`.
        self._transactions = 0
        self._writer = writer
        self._bounds = BoundFrames()
        # Of the open transaction: its begin message (with the watermark of an earlier one), and its watermark.
        self._begin_message: Begin | None = None
        # Valid while a transaction is open.
        self._version = ""
        # `HOLD` while no transaction is open.
        self._handling = _HOLD
        # The data messages of the open transaction that are not written, and their size.
        self._held: list[bytes] = []
        # Compared with `HELD_BYTES`.
        self._held_bytes = 0
        # The newest commit or status that wants an acknowledgement; `flush` takes it.
        self._unacknowledged: bytes | None = None

    @property
    def wants_flush(self) -> bool:
        """Whether something is to be made durable or acknowledged, and no transaction is half written."""
        is_due = self._writer.connection.in_transaction or self._unacknowledged is not None
        return is_due and self._handling is not _WRITE

    def take(self, batch: Sequence[bytes]) -> None:
        """Process the next messages; raises `ProtocolError` or `CannotApply`."""
        stream = self._stream
        for data in batch:
            is_open = stream.open is not None
            if is_open and data.startswith(DATA):
                self._take_data(data)
            elif not (self._take_commit(data) if is_open else self._take_begin(data)):
                self._take(data)

    def _take_begin(self, data: bytes) -> bool:
        """Process a begin that is recognised by its bytes and may come now; returns whether it was one."""
        begin, stream = self._bounds.begin(data), self._stream
        if begin is None or stream.open is not None:
            return False
        message, version = begin
        if stream.last is not None and version <= stream.last:
            return False
        self._begin(message, version)
        stream.begin(version)
        return True

    def _take_commit(self, data: bytes) -> bool:
        """Process a commit that is recognised by its bytes and may come now; returns whether it was one."""
        commit = self._bounds.commit(data)
        if commit is None or commit[0] != self._stream.open:
            return False
        version, time_ms = commit
        self._commit(data, time_ms)
        self._stream.commit(version)
        return True

    def _take(self, data: bytes) -> None:
        message = self._receive(data)
        match message:
            case Begin():
                self._begin(message, message.commit_watermark)
            case Data():
                self._take_data(data)
            case Commit():
                self._commit(data, message.commit_time_ms)
            case Rollback():
                self._rollback()
            case Status() if message.wants_ack:
                self._unacknowledged = data
            case ResetRequired():
                self.reset = message
            case _:
                pass
        self._stream.advance(message)

    def flush(self) -> bytes | None:
        """Make the complete transactions durable; returns the acknowledgement to send, if one is due."""
        self._writer.flush()
        newest, self._unacknowledged = self._unacknowledged, None
        if newest is None:
            return None
        message = codec.decode_downstream(newest)
        assert isinstance(message, Commit | Status)
        return codec.encode(status_ack(message))

    def take_count(self) -> int:
        """How many transactions were applied since the last call."""
        count, self._transactions = self._transactions, 0
        return count

    def abort(self) -> None:
        """Roll back what is not durable, after the connection has ended."""
        self._end_transaction()
        self._writer.rollback()

    def _may_pass(self, message: AnyDownstream, rule: str) -> bool:
        # A source may send again what the replica has, after a connection that broke before the acknowledgement.
        return rule == "watermark-order" and isinstance(message, Begin)

    def _begin(self, message: Begin, version: str) -> None:
        is_known = self._stream.last is not None and version <= self._stream.last
        self._handling = _SKIP if is_known else _HOLD
        self._begin_message, self._version = message, version

    def _take_data(self, data: bytes) -> None:
        if self._handling is _SKIP:
            return
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > HELD_BYTES:
            if self._handling is _HOLD:
                # So that a rollback of this transaction does not undo the ones before it.
                self._writer.flush()
                self._handling = _WRITE
            self._write_held()

    def _write_held(self) -> None:
        assert self._begin_message is not None
        self._writer.begin(self._version, self._begin_message.json_mode or "p")
        held, self._held, self._held_bytes = self._held, [], 0
        self._frames.apply_all(held, self._writer)

    def _commit(self, data: bytes, time_ms: float | None) -> None:
        assert self._begin_message is not None
        if self._handling is not _SKIP:
            self._write_held()
            self._writer.commit()
            self._transactions += 1
            self.commit_time_ms = time_ms
        if not self._begin_message.skip_ack:
            self._unacknowledged = data
        self._end_transaction()

    def _rollback(self) -> None:
        if self._handling is _WRITE:
            self._writer.rollback()
        self._end_transaction()

    def _end_transaction(self) -> None:
        self._handling = _HOLD
        self._begin_message = None
        self._held, self._held_bytes = [], 0
