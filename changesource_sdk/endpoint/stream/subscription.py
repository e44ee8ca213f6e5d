"""One consumer's stream: waiting, snapshot, catching up, live, reset, closing.

Each subscription is a small state machine on its own connection and at its own watermark; it cannot delay another one.
It has three tasks: one sends, one reads acknowledgements, one checks liveness. The first that ends determines how the
connection ends.

Contract: only whole transactions above the consumer's watermark are sent, in order; a stop takes effect at the next
transaction boundary. A consumer of the "shipped" dialect gets its snapshot on one connection and reconnects for the
changes; one of the "sketch" dialect continues on the same connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from time import time

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from changesource_sdk.changelog.log import StoredTransaction
from changesource_sdk.endpoint.stream.acks import AckStore
from changesource_sdk.endpoint.stream.flow import Flow, PeerConnection
from changesource_sdk.endpoint.stream.plan import Await, Initial, Reset, Resume
from changesource_sdk.endpoint.stream.receive import PEER_LEFT, Ending, receive
from changesource_sdk.endpoint.stream.source import SubscriptionSource
from changesource_sdk.errors import ChangesourceError, SnapshotGone
from changesource_sdk.observe.metrics import EndpointMetrics
from protocol.errors import ProtocolError
from protocol.framing import frame
from protocol.messages import AckRequested, ResetRequired, Status
from protocol.stream.handshake import Handshake
from protocol.stream.session import Premature, ProducerSession

#: Transactions are joined into writes of about this size.
CHUNK_BYTES = 256 * 1024
#: How much of the log is read at a time for a consumer that catches up.
CATCH_UP_BYTES = 2 * 1024 * 1024
#: Seconds a connection stays open after `reset-required`; a consumer that does not reset would reconnect every 25 ms.
RESET_HOLD = 30.0
STOPPING = Ending(CloseCode.GOING_AWAY, "the endpoint is stopping", "stopping")


class Phase(StrEnum):
    """What a subscription is doing; the values are those of `/statusz` and the metrics."""

    WAITING = "waiting"
    SNAPSHOT = "snapshot"
    SNAPSHOT_SENT = "snapshot-sent"
    CATCHING_UP = "catching-up"
    LIVE = "live"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Intervals:
    """The intervals of a subscription, in seconds."""

    status_interval: float
    ping_interval: float
    dead_after: float


class Subscription:
    """A connected consumer. Invariant: everything up to `sent`, and nothing after it, was passed to its socket."""

    def __init__(
        self,
        connection: PeerConnection,
        handshake: Handshake,
        source: SubscriptionSource,
        acks: AckStore,
        metrics: EndpointMetrics,
        intervals: Intervals,
        stopping: asyncio.Event,
    ) -> None:
        # What this consumer would send if it reconnected now; updated after an initial sync and when the log resets.
        self.handshake = handshake
        self.opened = time()
        # Written by `_enter`, which also moves the gauge.
        self.phase = Phase.WAITING
        self._session = ProducerSession(handshake)
        self._connection = connection
        self._source = source
        self._acks = acks
        self._metrics = metrics
        self._intervals = intervals
        self._stopping = stopping
        self._flow = Flow(connection)
        # The watermark after which stored frames are read, set by `_serve`; damaged frames are replaced from there.
        self._reading_after = ""

    @property
    def sent(self) -> str | None:
        """The last watermark sent; before that, the consumer's own."""
        return self._session.sent

    @property
    def acked(self) -> str | None:
        """The last watermark that the consumer has, by its acknowledgement or its handshake."""
        return self._session.acked

    def silent_for(self) -> float:
        """Seconds since the consumer last sent or took a byte."""
        return self._flow.silent_for()

    async def run(self) -> Ending:
        """Serve until the consumer disconnects, breaks the protocol or is dead, or the endpoint stops."""
        self._metrics.consumers.labels(self.phase).inc()
        # In order of precedence: if several have ended, the first one knows the cause.
        tasks = [
            asyncio.ensure_future(self._watch()),
            asyncio.ensure_future(receive(self._connection, self._take_ack)),
            asyncio.ensure_future(self._send()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(task.result() for task in tasks if task in done)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._metrics.consumers.labels(self.phase).dec()

    async def _watch(self) -> Ending:
        await self._flow.keep_alive(self._intervals.ping_interval, self._intervals.dead_after)
        return Ending(None, f"no sign of life for {self._intervals.dead_after:g} s", "dead")

    async def _send(self) -> Ending:
        try:
            try:
                return await self._serve()
            except SnapshotGone as error:
                await self._source.mend(self._reading_after, error)
                raise
        except ConnectionClosed:
            return PEER_LEFT
        except ChangesourceError as error:
            return Ending(CloseCode.TRY_AGAIN_LATER, str(error), error.code)

    async def _serve(self) -> Ending:
        """Make a plan and execute it; again whenever the log resets."""
        while not self._stopping.is_set():
            plan = await self._source.plan(self.handshake)
            match plan:
                case Await():
                    if plan.above is not None:
                        await self._source.ask_for_snapshot(plan.above, plan.reason)
                    await self._source.tail.news(within=1.0)
                case Reset():
                    return await self._reset(plan)
                case Initial():
                    self._reading_after = plan.snapshot
                    await self._send_initial_sync(plan.snapshot)
                    if self.handshake.dialect == "shipped":
                        self._enter(Phase.SNAPSHOT_SENT)
                        await self._stopping.wait()
                case Resume():
                    self._reading_after = plan.after
                    self._hold()
                    await self._follow()
                    self.handshake = replace(self.handshake, last_watermark=self.sent)
        return STOPPING

    async def _send_initial_sync(self, snapshot: str) -> None:
        self._enter(Phase.SNAPSHOT)
        sync, chunks = await asyncio.to_thread(self._source.open_initial_sync, self.handshake, snapshot)
        self.handshake = replace(self.handshake, last_watermark=sync.version, replica_version=sync.version)
        self._session.begin(sync.version)
        # Read one chunk ahead: a consumer disconnects after the last one, and it must be counted before.
        chunk = await asyncio.to_thread(next, chunks, None)
        while chunk is not None:
            following = await asyncio.to_thread(next, chunks, None)
            if chunk:
                await self._write(chunk)
            # Repeated, so that the subscriber does not expire during a long sync.
            self._acks.note(self.handshake, sync.held)
            chunk = following
        self._session.commit()
        self._metrics.sent_transactions.inc()
        self._metrics.sent_frames.inc(sync.frames)

    async def _follow(self) -> None:
        """Send transactions as they arrive, until the log resets or the endpoint stops."""
        tail = self._source.tail
        lineage = tail.lineage
        self._enter(Phase.CATCHING_UP)
        with tail.following():
            while not self._stopping.is_set() and tail.lineage == lineage:
                assert self.sent is not None
                transactions = tail.after(self.sent)
                if transactions is None:
                    transactions = await self._source.read_after(self.sent, CATCH_UP_BYTES)
                if transactions is None:
                    return
                if transactions:
                    await self._send_transactions(transactions)
                else:
                    await self._idle()

    async def _idle(self) -> None:
        """Caught up: send a status, wait for transactions, and send a status at every idle interval."""
        if self.phase is not Phase.LIVE:
            self._enter(Phase.LIVE)
            await self._write_status()
        assert self.sent is not None
        before = self.sent
        await self._source.tail.news(self._intervals.status_interval)
        is_caught_up = self.sent == before and self._source.tail.after(self.sent) == []
        if is_caught_up and not self._stopping.is_set():
            await self._write_status()

    async def _send_transactions(self, transactions: Iterable[StoredTransaction]) -> None:
        for group in _grouped(transactions):
            if self._stopping.is_set():
                return
            self._session.begin(group[-1].watermark)
            if joined := b"".join(stored.frames for stored in group if stored.frames is not None):
                await self._write(joined)
            if group[-1].frames is None:
                await self._send_large(group[-1])
            self._session.commit()
            self._count(group)

    async def _send_large(self, stored: StoredTransaction) -> None:
        pieces = stored.chunks()
        while piece := await asyncio.to_thread(next, pieces, None):
            await self._write(piece)

    def _count(self, group: list[StoredTransaction]) -> None:
        self._metrics.sent_transactions.inc(len(group))
        self._metrics.sent_frames.inc(sum(stored.changes + 2 for stored in group))
        # Only the first of a group, which waited longest: observing each one would cost too much.
        if self.phase is Phase.LIVE and (committed := group[0].commit_time_ms) is not None:
            self._metrics.lag.observe(max(0.0, time() - committed / 1000))

    async def _write(self, chunk: bytes) -> None:
        await self._flow.write(chunk)
        self._metrics.sent_bytes.inc(len(chunk))

    async def _write_status(self) -> None:
        assert self.sent is not None
        if self.handshake.dialect == "shipped":
            message: Status | AckRequested = Status(watermark=self.sent)
        else:
            message = AckRequested(latest_upstream_watermark=self.sent)
        await self._write(frame(self._session.send(message)))

    async def _reset(self, plan: Reset) -> Ending:
        self._enter(Phase.RESET)
        self._metrics.resets.labels(plan.code).inc()
        if plan.above is not None:
            await self._source.ask_for_snapshot(plan.above, plan.message)
        message = ResetRequired(message=plan.message, error_details={"reason": plan.code})
        await self._write(frame(self._session.send(message)))
        try:
            await asyncio.wait_for(self._stopping.wait(), RESET_HOLD)
        except TimeoutError:
            pass
        return Ending(CloseCode.NORMAL_CLOSURE, f"reset required: {plan.message}", "reset")

    def _take_ack(self, data: str) -> None:
        self._metrics.acks.inc()
        ack = self._session.receive(data)
        if isinstance(ack, Premature) and ack.watermark > self._source.tail.head:
            raise ProtocolError(f"acknowledges {ack.watermark}, which this log never had", where="watermark")
        # Also repeated ones: they keep the subscriber alive. One of an earlier connection is valid too.
        self._acks.note(self.handshake, ack.watermark)

    def _hold(self) -> None:
        """Keep the log from the consumer's watermark on, before it acknowledges anything on this connection.

        Not for the sketch dialect: such a consumer may be a `changesource tail` that never reconnects, so it counts
        only once it acknowledges.
        """
        if self.handshake.dialect == "shipped" and self.handshake.last_watermark is not None:
            self._acks.note(self.handshake, self.handshake.last_watermark)

    def _enter(self, phase: Phase) -> None:
        self._metrics.consumers.labels(self.phase).dec()
        self._metrics.consumers.labels(phase).inc()
        self.phase = phase


def _grouped(transactions: Iterable[StoredTransaction]) -> Iterator[list[StoredTransaction]]:
    """Groups of transactions to write together: up to `CHUNK_BYTES`, and ending with any large one."""
    group: list[StoredTransaction] = []
    size = 0
    for stored in transactions:
        group.append(stored)
        size += len(stored.frames or b"")
        if size >= CHUNK_BYTES or stored.frames is None:
            yield group
            group, size = [], 0
    if group:
        yield group
