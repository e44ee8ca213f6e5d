"""What a connection's messages mean for the replica; no I/O of its own, no clock.

`LiveIntake` takes the stream of transactions, `InitialIntake` the one transaction of an initial sync. Each is given
every message in order and raises on the first that is not allowed or does not fit; the connection must then end and
`abort` be called.

A live transaction is held until its end is there, so that several small ones can become durable together (`flush`);
one that grows large is written as it comes. Acknowledgements are due only after the flush, and only the newest is
sent: they are cumulative. A transaction that the replica already has is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol import codec
from protocol.codec import AnyDownstream
from protocol.errors import SessionError
from protocol.handshake import Handshake
from protocol.messages import Begin, Commit, Data, ResetRequired, Rollback, Status, StatusAck
from protocol.stream import Stream
from reference_cache.replica.errors import CannotApply
from reference_cache.replica.writing.initial_load import InitialLoad
from reference_cache.replica.writing.writer import ReplicaWriter
from reference_cache.replicator.bound_frames import BoundFrames
from reference_cache.replicator.row_frames import DATA, RowFrames

HELD_BYTES = 1 << 20
"""A transaction larger than this is not held in memory but written as it comes."""

_HARMLESS = frozenset({"initial-status", "status-order"})
"""Rules that a source should keep but that cost nobody anything."""


class _Intake:
    """Order and shape of the messages, common to both kinds."""

    def __init__(self, handshake: Handshake) -> None:
        self._stream = Stream(handshake)
        self._frames = RowFrames()
        self._is_open = False

    def _receive(self, data: bytes) -> AnyDownstream:
        """A message that may come now, and is taken in by the caller with `advance`."""
        message = codec.decode_downstream(data)
        for problem in self._stream.problems(message):
            if problem.rule not in _HARMLESS and not self._may_pass(message, problem.rule):
                raise SessionError(problem.message, where=message.name, rule=problem.rule)
        return message

    def _may_pass(self, message: AnyDownstream, rule: str) -> bool:
        return False


class InitialIntake(_Intake):
    """An initial sync on its way into a load; `is_complete` once its commit has come."""

    def __init__(self, handshake: Handshake, load: InitialLoad, former_version: str | None) -> None:
        super().__init__(handshake)
        self.is_complete = False
        self._load = load
        self._former_version = former_version

    def take(self, batch: Sequence[bytes]) -> None:
        """The next messages."""
        place, end = 0, len(batch)
        while place < end:
            count = self._frames.apply_inserts(batch, place, self._load) if self._is_open else 0
            if not count:
                self._take(batch[place])
            place += count or 1

    def _take(self, data: bytes) -> None:
        if self._is_open and data.startswith(DATA):
            self._frames.apply(data, self._load)
            return
        message = self._receive(data)
        match message:
            case Begin():
                self._begin(message)
            case Commit():
                self.is_complete = True
                self._is_open = False
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
        self._is_open = True


class LiveIntake(_Intake):
    """Live transactions on their way into the replica.

    Invariant: what is held belongs to the open transaction, and none of it is written; of a large one, what came before
    is. `reset` is set once the source has asked for one.
    """

    def __init__(self, handshake: Handshake, writer: ReplicaWriter) -> None:
        super().__init__(handshake)
        self.reset: ResetRequired | None = None
        self.commit_time_ms: float | None = None
        self._transactions = 0
        self._writer = writer
        self._bounds = BoundFrames()
        self._terms: Begin | None = None
        self._version = ""
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._is_written = False
        self._is_known = False
        self._unacknowledged: bytes | None = None  # a commit or a status

    @property
    def wants_flush(self) -> bool:
        """Whether there is something to make durable or to acknowledge, and no transaction half written."""
        return not self._is_written and (self._writer.connection.in_transaction or self._unacknowledged is not None)

    def take(self, batch: Sequence[bytes]) -> None:
        """The next messages."""
        for data in batch:
            if self._is_open and data.startswith(DATA):
                self._take_data(data)
            elif not (self._take_commit(data) if self._is_open else self._take_begin(data)):
                self._take(data)

    def _take_begin(self, data: bytes) -> bool:
        """Take a begin that is recognised and may come now."""
        found, stream = self._bounds.begin(data), self._stream
        if found is None or stream.open is not None or (stream.last is not None and found[1] <= stream.last):
            return False
        self._begin(*found)
        stream.begin(found[1])
        return True

    def _take_commit(self, data: bytes) -> bool:
        """Take a commit that is recognised and may come now."""
        found = self._bounds.commit(data)
        if found is None or found[0] != self._stream.open:
            return False
        self._commit(data, found[1])
        self._stream.commit(found[0])
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
        """Make the complete transactions durable; the acknowledgement to send, if one is due."""
        self._writer.flush()
        newest, self._unacknowledged = self._unacknowledged, None
        if newest is None:
            return None
        message = codec.decode_downstream(newest)
        filled = {"ack": True} if isinstance(message, Status) else {}
        return codec.encode(StatusAck.model_validate(filled | message.to_json()))

    def take_count(self) -> int:
        """How many transactions were written since the last call."""
        count, self._transactions = self._transactions, 0
        return count

    def abort(self) -> None:
        """Take back what is not durable: the connection has ended."""
        self._end_transaction()
        self._writer.rollback()

    def _may_pass(self, message: AnyDownstream, rule: str) -> bool:
        return rule == "watermark-order" and isinstance(message, Begin)

    def _begin(self, terms: Begin, version: str) -> None:
        self._is_known = self._stream.last is not None and version <= self._stream.last
        self._terms, self._version = terms, version
        self._is_open = True

    def _take_data(self, data: bytes) -> None:
        if self._is_known:
            return
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > HELD_BYTES:
            if not self._is_written:
                self._writer.flush()
                self._is_written = True
            self._write_held()

    def _write_held(self) -> None:
        assert self._terms is not None
        self._writer.begin(self._version, self._terms.json_mode or "p")
        held, self._held, self._held_bytes = self._held, [], 0
        self._frames.apply_all(held, self._writer)

    def _commit(self, data: bytes, time_ms: float | None) -> None:
        assert self._terms is not None
        if not self._is_known:
            self._write_held()
            self._writer.commit()
            self._transactions += 1
            self.commit_time_ms = time_ms
        if not self._terms.skip_ack:
            self._unacknowledged = data
        self._end_transaction()

    def _rollback(self) -> None:
        if self._is_written:
            self._writer.rollback()
        self._end_transaction()

    def _end_transaction(self) -> None:
        self._is_open = self._is_written = self._is_known = False
        self._terms = None
        self._held, self._held_bytes = [], 0
