"""One consumer's stream: waiting, snapshot, catching up, live, reset, closing.

Each subscription is its own small state machine on its own connection, served from its own watermark; nothing it does
can hold back another. Three tasks share it: one sends, one reads acknowledgements, one watches for life. Whichever ends
first decides how the connection ends.

Contract: only whole transactions above the consumer's watermark are sent, in order; a stop is honoured at the next
transaction boundary. The first dialect ("shipped") takes its snapshot on one connection and comes back on another for
what follows; the "sketch" goes on with the same one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from time import time

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from changesource_sdk.changelog.log import Stored
from changesource_sdk.endpoint.stream.acks import AckStore
from changesource_sdk.endpoint.stream.flow import Flow, PeerConnection
from changesource_sdk.endpoint.stream.plan import Await, Initial, Reset, Resume
from changesource_sdk.endpoint.stream.source import Source
from changesource_sdk.endpoint.stream.upstream import PEER_LEFT, Ending, receive
from changesource_sdk.errors import ChangesourceError, SnapshotGone
from changesource_sdk.observe.metrics import EndpointMetrics
from protocol.errors import ProtocolError
from protocol.framing import frame
from protocol.handshake import Handshake
from protocol.messages import AckRequested, ResetRequired, Status
from protocol.session import Premature, ProducerSession

#: Transactions are joined into writes of about this size, and the log is read by as much.
CHUNK_BYTES = 256 * 1024
CATCH_UP_BYTES = 2 * 1024 * 1024
#: How long a consumer told to reset may stay; one that does not reset by itself would else be back in 25 ms.
RESET_HOLD = 30.0
STOPPING = Ending(CloseCode.GOING_AWAY, "the endpoint is stopping", "stopping")


class Phase(StrEnum):
    """Where a subscription stands."""

    WAITING = "waiting"
    SNAPSHOT = "snapshot"
    SNAPSHOT_SENT = "snapshot-sent"
    CATCHING_UP = "catching-up"
    LIVE = "live"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Pace:
    """The times a subscription keeps, in seconds."""

    status_interval: float
    ping_interval: float
    dead_after: float


class Subscription:
    """A consumer being served. Invariant: everything up to `sent`, and nothing beyond it, was handed to its socket."""

    def __init__(
        self,
        connection: PeerConnection,
        handshake: Handshake,
        source: Source,
        acks: AckStore,
        metrics: EndpointMetrics,
        pace: Pace,
        stopping: asyncio.Event,
    ) -> None:
        self.handshake = handshake  # kept up to date: what this consumer would ask for if it came back now
        self.opened = time()
        self.phase = Phase.WAITING
        self._session = ProducerSession(handshake)
        self._connection = connection
        self._source = source
        self._acks = acks
        self._metrics = metrics
        self._pace = pace
        self._stopping = stopping
        self._flow = Flow(connection)
        # The watermark after which stored frames are being read, set by `_serve`: damage is mended from there.
        self._reading_after = ""

    @property
    def sent(self) -> str | None:
        """The last commit sent, or what the consumer came with."""
        return self._session.sent

    @property
    def acked(self) -> str | None:
        """What the consumer has said to hold, by an ack or by coming back after it."""
        return self._session.acked

    def silent_for(self) -> float:
        """Seconds since the consumer last sent or took a byte."""
        return self._flow.silent_for()

    async def run(self) -> Ending:
        """Serve until the consumer leaves, breaks the rules, dies, or the endpoint stops."""
        self._metrics.consumers.labels(self.phase).inc()
        # In order of precedence: the first of those that ended together says why, the others only that it ended.
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
        await self._flow.keep_alive(self._pace.ping_interval, self._pace.dead_after)
        return Ending(None, f"no sign of life for {self._pace.dead_after:g} s", "dead")

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
        """Decide, and do what was decided, again whenever the log starts over."""
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
        # One chunk is read ahead: a consumer that leaves with the last one does so after it was counted.
        chunk = await asyncio.to_thread(next, chunks, None)
        while chunk is not None:
            following = await asyncio.to_thread(next, chunks, None)
            if chunk:
                await self._write(chunk)
            # Repeated so that a long sync is not taken for one that was given up.
            self._acks.note(self.handshake, sync.held)
            chunk = following
        self._session.commit()
        self._metrics.sent_transactions.inc()
        self._metrics.sent_frames.inc(sync.frames)

    async def _follow(self) -> None:
        """Send transactions as they come, until the log starts over or a stop is asked for."""
        tail = self._source.tail
        lineage = tail.lineage
        self._enter(Phase.CATCHING_UP)
        with tail.following():
            while not self._stopping.is_set() and tail.lineage == lineage:
                assert self.sent is not None
                found = tail.after(self.sent)
                if found is None:
                    found = await self._source.read_after(self.sent, CATCH_UP_BYTES)
                if found is None:
                    return
                if found:
                    await self._send_transactions(found)
                else:
                    await self._idle()

    async def _idle(self) -> None:
        """Caught up: say so once, then at every idle interval."""
        if self.phase is not Phase.LIVE:
            self._enter(Phase.LIVE)
            await self._write_status()
        assert self.sent is not None
        before = self.sent
        await self._source.tail.news(self._pace.status_interval)
        is_caught_up = self.sent == before and self._source.tail.after(self.sent) == []
        if is_caught_up and not self._stopping.is_set():
            await self._write_status()

    async def _send_transactions(self, found: Iterable[Stored]) -> None:
        for group in _grouped(found):
            if self._stopping.is_set():
                return
            self._session.begin(group[-1].watermark)
            if joined := b"".join(stored.frames for stored in group if stored.frames is not None):
                await self._write(joined)
            if group[-1].frames is None:
                await self._send_large(group[-1])
            self._session.commit()
            self._count(group)

    async def _send_large(self, stored: Stored) -> None:
        pieces = stored.chunks()
        while piece := await asyncio.to_thread(next, pieces, None):
            await self._write(piece)

    def _count(self, group: list[Stored]) -> None:
        self._metrics.sent_transactions.inc(len(group))
        self._metrics.sent_frames.inc(sum(stored.changes + 2 for stored in group))
        # The first of a group waited longest; observing it alone keeps the cost off the hot path.
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
        said = self._session.receive(data)
        if isinstance(said, Premature) and said.watermark > self._source.tail.head:
            raise ProtocolError(f"acknowledges {said.watermark}, which this log never had", where="watermark")
        # A repeated ack is still a sign that the consumer is there, and one of a former connection still counts.
        self._acks.note(self.handshake, said.watermark)

    def _hold(self) -> None:
        """Keep the log from where this consumer is, though it has acknowledged nothing on this connection yet.

        Not for the sketch, whose consumers may be a curious `tail` that never comes back: those count once they ack.
        """
        if self.handshake.dialect == "shipped" and self.handshake.last_watermark is not None:
            self._acks.note(self.handshake, self.handshake.last_watermark)

    def _enter(self, phase: Phase) -> None:
        self._metrics.consumers.labels(self.phase).dec()
        self._metrics.consumers.labels(phase).inc()
        self.phase = phase


def _grouped(found: Iterable[Stored]) -> Iterator[list[Stored]]:
    """Runs of transactions to write together: up to `CHUNK_BYTES`, and ending with any large one."""
    group: list[Stored] = []
    size = 0
    for stored in found:
        group.append(stored)
        size += len(stored.frames or b"")
        if size >= CHUNK_BYTES or stored.frames is None:
            yield group
            group, size = [], 0
    if group:
        yield group
