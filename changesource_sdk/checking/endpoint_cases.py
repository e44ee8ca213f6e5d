"""The cases of an endpoint check, as data: to add a case, add an entry to `CASES`.

A case connects as zero-cache would, in the order in which zero-cache would, and returns a sentence about what it saw.
The connection itself notes broken rules of single frames; a case adds what only shows over time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from changesource_sdk.checking.endpoint_run import EndpointRun, NotSeen, ReceivedSnapshot
from changesource_sdk.checking.folded_rows import FoldedRows
from changesource_sdk.checking.probe_stream import ProbeStream, ResetReceived, SeenTransaction, Silent, StreamClosed
from protocol import watermark
from protocol.stream.handshake import Handshake

MOST_TRANSACTIONS = 50
MOST_STARTS = 8
MOST_ROWS = 300_000
FAR_AHEAD = 36**3


@dataclass(frozen=True, slots=True)
class EndpointCase:
    """One check. `disturbs` marks a case after which the endpoint may start over for all its consumers."""

    name: str
    proves: str
    run: Callable[[EndpointRun], Awaitable[str]]
    disturbs: bool = False


async def initial_sync(run: EndpointRun) -> str:
    run.snapshot = await run.initial_sync(run.handshake())
    return f"{run.snapshot.rows.count} rows at {run.snapshot.watermark}"


async def live_stream(run: EndpointRun) -> str:
    snapshot = _snapshot(run)
    async with run.connect(run.handshake(snapshot.watermark), snapshot.checker) as stream:
        try:
            run.history = await run.watch(stream, MOST_TRANSACTIONS)
            await _ping(run, stream)
        except ResetReceived as error:
            reason = f"asked for what follows the snapshot {snapshot.watermark}, got reset-required: {error}"
            raise run.broken("snapshot-resumable", reason) from None
        except StreamClosed as error:
            raise run.broken("stays-open", f"closed by the endpoint: {error}") from None
        await _repeat_acks(run, stream, snapshot.watermark)
    return f"{len(run.history)} transactions"


async def _repeat_acks(run: EndpointRun, stream: ProbeStream, first: str) -> None:
    """Acks as a cache that reconnected sends them: one from long ago, and the last one again."""
    try:
        await stream.acknowledge(first)
        await stream.acknowledge(_head(run))
        await _ping(run, stream)
    except StreamClosed as error:
        raise run.broken("tolerates-acks", f"closed after a repeated ack: {error}") from None


async def _ping(run: EndpointRun, stream: ProbeStream) -> None:
    if not await stream.answers_ping(run.patience):
        raise run.broken("answers-pings", f"no pong for {run.patience:.0f} s")


async def another_initial_sync(run: EndpointRun) -> str:
    """Sync once more with the same checker, which knows every watermark that was sent so far."""
    snapshot = _snapshot(run)
    again = await run.initial_sync(run.handshake(), snapshot.checker)
    async with run.connect(run.handshake(_usable(again.watermark))) as stream:
        try:
            await run.watch(stream, 1)
        except ResetReceived as error:
            reason = f"asked for what follows the initial sync {again.watermark}, got reset-required: {error}"
            raise run.broken("snapshot-resumable", reason) from None
        except StreamClosed as error:
            raise run.broken("stays-open", f"closed by the endpoint: {error}") from None
    return f"{snapshot.watermark}, then {again.watermark}"


async def two_consumers(run: EndpointRun) -> str:
    snapshot = _snapshot(run)
    request = run.handshake(_head(run), snapshot.watermark)
    async with run.connect(request) as first, run.connect(request) as second:
        for name, stream in (("first", first), ("second", second)):
            try:
                await _ping(run, stream)
            except StreamClosed as error:
                raise run.broken("several-consumers", f"the {name} of two was closed: {error}") from None
    return "two at once"


async def resume(run: EndpointRun) -> str:
    snapshot = _snapshot(run)
    if not run.history:
        raise NotSeen(
            f"no transaction came in {run.settings.watch:g} s: write to the upstream meanwhile, or --watch longer"
        )
    starts = [snapshot.watermark, *(_usable(seen.watermark) for seen in run.history[:-1])]
    step = max(1, len(starts) // MOST_STARTS)
    for number in range(0, len(starts), step):
        run.report_progress(f"from {starts[number]}")
        await _resume_from(run, starts[number], run.history[number:])
    return f"from {len(range(0, len(starts), step))} watermarks"


async def _resume_from(run: EndpointRun, start: str, expected: list[SeenTransaction]) -> None:
    async with run.connect(run.handshake(start, _snapshot(run).watermark)) as stream:
        try:
            for wanted in expected:
                _compare(run, start, wanted, await run.transaction(stream, run.patience))
        except Silent:
            raise run.broken("resume-complete", f"after {start} nothing came; {wanted.watermark} was next") from None
        except ResetReceived as error:
            raise run.broken("resume-known", f"{start} was given out, and got reset-required: {error}") from None
        except StreamClosed as error:
            raise run.broken("stays-open", f"closed while resuming from {start}: {error}") from None


def _compare(run: EndpointRun, start: str, wanted: SeenTransaction, got: SeenTransaction) -> None:
    if got.watermark != wanted.watermark:
        reason = f"after {start} came {got.watermark} where {wanted.watermark} came the first time"
        raise run.broken("resume-complete", reason)
    if got.digest != wanted.digest:
        reason = f"{got.watermark} has {len(got.changes)} changes, other ones than the {len(wanted.changes)} before"
        raise run.broken("same-content", reason)


async def own_tables(run: EndpointRun) -> str:
    request = replace(run.handshake(), app_id=f"{run.settings.app_id}_b", shard_num=run.settings.shard_num + 1)
    other = await run.initial_sync(request)
    return f"{request.shard}, at {other.watermark}"


async def seam(run: EndpointRun) -> str:
    snapshot = _snapshot(run)
    if snapshot.rows.count > MOST_ROWS:
        raise NotSeen(f"more than {MOST_ROWS} rows")
    later = await run.initial_sync(run.handshake())
    await _catch_up(run, snapshot, later)
    names = {
        "here": f"the snapshot {snapshot.watermark} with the changes up to {later.watermark}",
        "there": f"the snapshot {later.watermark}",
    }
    for difference in _rows_at(run, later.watermark).differences(later.rows, **names):
        run.broken("seam", difference)
    return f"{snapshot.watermark} and what follows, {later.watermark}"


async def _catch_up(run: EndpointRun, snapshot: ReceivedSnapshot, later: ReceivedSnapshot) -> None:
    """Read on until the later snapshot's watermark, if the stream goes that far."""
    if later.watermark <= _head(run):
        return
    async with run.connect(run.handshake(_head(run), snapshot.watermark)) as stream:
        try:
            while _head(run) < later.watermark:
                run.history.append(await run.transaction(stream, run.settings.watch))
        except Silent:
            return
        except ResetReceived:
            raise NotSeen("the endpoint started over in between") from None
        except StreamClosed as error:
            raise run.broken("stays-open", f"closed by the endpoint: {error}") from None


def _rows_at(run: EndpointRun, reached: str) -> FoldedRows:
    rows = _snapshot(run).rows.copy()
    for seen in run.history:
        if seen.watermark <= reached:
            for change in seen.changes:
                rows.take(change)
    return rows


async def unknown_replica(run: EndpointRun) -> str:
    major, _ = watermark.to_int(_snapshot(run).watermark)
    # Below the snapshot, and of a form that a counter does not give out.
    unknown = watermark.from_int(major - 1, 0)
    await _expect_reset(run, run.handshake(unknown), "a replica it never made")
    return f"reset-required for {unknown}"


async def ahead(run: EndpointRun) -> str:
    major, _ = watermark.to_int(_head(run))
    unknown = watermark.from_int(major + FAR_AHEAD)
    await _expect_reset(run, run.handshake(unknown), "a watermark ahead of its log")
    honest = run.handshake(_head(run), _snapshot(run).watermark)
    async with run.connect(honest) as stream:
        try:
            await run.watch(stream, 1)
        except ResetReceived as error:
            reason = f"after a claim of {unknown}, a consumer that is at {_head(run)} got reset-required: {error}"
            raise run.broken("claim-harmless", reason) from None
        except StreamClosed as error:
            raise run.broken("stays-open", f"closed by the endpoint: {error}") from None
    fresh = await run.initial_sync(run.handshake())
    return f"reset-required for {unknown} alone, then an initial sync at {fresh.watermark}"


async def _expect_reset(run: EndpointRun, request: Handshake, what: str) -> None:
    async with run.connect(request) as stream:
        try:
            seen = await run.transaction(stream, run.patience)
        except ResetReceived:
            return
        except (Silent, StreamClosed) as error:
            did = "closed the stream" if isinstance(error, StreamClosed) else f"sent nothing for {run.patience:.0f} s"
        else:
            did = f"continued with {seen.watermark}"
    raise run.broken("unknown-reset", f"asked to continue from {request.last_watermark}, {what}, it {did}")


async def sketch_dialect(run: EndpointRun) -> str:
    async with run.connect(run.handshake(dialect="sketch"), is_optional=True) as stream:
        reached, _ = await run.snapshot_of(stream)
        try:
            await stream.acknowledge(reached)
            seen = await run.watch(stream, MOST_TRANSACTIONS)
            await _ping(run, stream)
        except StreamClosed as error:
            raise run.broken("sketch-goes-on", f"closed after the snapshot: {error}") from None
    return f"snapshot and {len(seen)} transactions on one connection"


def _snapshot(run: EndpointRun) -> ReceivedSnapshot:
    if run.snapshot is None:
        raise NotSeen("there was no snapshot to continue from")
    _usable(run.snapshot.watermark)
    return run.snapshot


def _head(run: EndpointRun) -> str:
    return _usable(run.history[-1].watermark) if run.history else _snapshot(run).watermark


def _usable(reached: str) -> str:
    if not watermark.is_valid(reached):
        raise NotSeen(f"{reached!r} is no watermark to continue from")
    return reached


CASES = (
    EndpointCase(
        "initial sync", "a consumer that has nothing gets tables, indexes, rows and its own tables", initial_sync
    ),
    EndpointCase("live stream", "the stream continues after the snapshot, takes acks and answers pings", live_stream),
    EndpointCase(
        "another initial sync", "every initial sync is above everything that was sent before", another_initial_sync
    ),
    EndpointCase("two consumers", "consumers of one shard do not disturb each other", two_consumers),
    EndpointCase("resume", "every watermark that was sent can be resumed from, with the same transactions", resume),
    EndpointCase("other app and shard", "each app and shard gets tables of its own", own_tables),
    EndpointCase("seam", "a snapshot and what follows it lead to the next snapshot", seam),
    EndpointCase("unknown replica", "what the endpoint does not know is reset", unknown_replica),
    EndpointCase("sketch dialect", "one connection for snapshot and changes", sketch_dialect),
    EndpointCase(
        "ahead of the log", "a consumer that claims more than the log has is reset, and no other is", ahead, True
    ),
)
"""All cases, in the order in which they are run."""
