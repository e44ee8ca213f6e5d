"""Replicates a change source into the replica: initial sync, live changes, resets and reconnects.

    replicator = Replicator(settings)
    replicator.on_version(notify)               # called after each durable step, with the replica's new state
    await replicator.run()                      # until cancelled

SQLite is written on the event loop: while a transaction is written, no messages are received, which is the
back-pressure. So the replicator needs a loop of its own; `process` gives it a process of its own.

- The source cannot be reached, or refuses: retry with a growing delay.
- A message is wrong or does not fit the replica: roll back, do not acknowledge, reconnect. If the same change does not
  fit twice in a row, reset (with `auto_reset`).
- The source sends `reset-required`: reset, which is a new initial sync (with `auto_reset`).
- The view syncer is too far behind in reading the replica: pause until it has caught up.
- The replica file was deleted: initial sync.
- The replica file is a seed in zero-cache's layout: a replica is made from it, without an initial sync.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable

from protocol.errors import ProtocolError
from reference_cache.replica.checkpoints import Checkpoints, leave_to_others
from reference_cache.replica.errors import CannotApply
from reference_cache.replica.stored_catalog import ReplicaState
from reference_cache.replica.wal import Wal
from reference_cache.replica.writing.from_seed import is_seed, load_seed
from reference_cache.replica.writing.initial_load import InitialLoad, load_new, load_over
from reference_cache.replica.writing.writer import ReplicaWriter, open_writer
from reference_cache.replicator.intake import InitialIntake, LiveIntake
from reference_cache.replicator.settings import ReplicatorSettings
from reference_cache.replicator.sole_writer import sole_writer
from reference_cache.replicator.status import ReplicatorStatus
from reference_cache.replicator.upstream import Upstream, UpstreamError, connect
from service_kit.backoff import reconnect_backoff
from service_kit.logs import event, logger

PROGRESS_SECONDS = 5.0
"""How often an initial sync logs its progress."""

CHECK_FILE_SECONDS = 0.5
"""How often the replicator checks that the replica file still exists."""

log = logger("replicator")
_RETRIED = (UpstreamError, ProtocolError, CannotApply, sqlite3.Error, OSError)

OnVersion = Callable[[ReplicaState], None]


class Replicator:
    """The only writer of a replica. Invariant: what was announced or acknowledged is durable in the replica.

    Everything runs on the event loop of `run`.
    """

    def __init__(self, settings: ReplicatorSettings) -> None:
        self._settings = settings
        self._status = ReplicatorStatus()
        # Written by `on_version`.
        self._listeners: list[OnVersion] = []
        # None until the first initial sync is complete, and after the replica file was deleted.
        self._writer: ReplicaWriter | None = None
        self._wal = Wal(settings.replica_file)
        self._checkpoints = Checkpoints(settings.replica_file)
        self._backoff = reconnect_backoff()
        # Whether the next connection is a new initial sync over the replica; cleared when that is complete.
        self._must_reset = False
        # Text of the last `CannotApply`; None after a transaction or an initial sync worked. The same text twice means
        # that reconnecting does not help.
        self._misfit: str | None = None
        # Set by `forget_changes` when the change log has room again.
        self._has_room = asyncio.Event()

    def on_version(self, callback: OnVersion) -> None:
        """Call `callback` with every durable version, in order.

        The same version may come twice: a reader should then take a new snapshot all the same, so that SQLite can
        truncate its WAL (see `Wal`).
        """
        self._listeners.append(callback)

    def status(self) -> ReplicatorStatus:
        if self._writer is not None:
            self._status.logged = self._writer.retention.logged
        return self._status

    def forget_changes(self, upto: str) -> None:
        """Note that the view syncer has read the change log up to and including this version."""
        if self._writer is None or self._must_reset:  # a reset holds the write lock, and starts a new log
            return
        retention = self._writer.retention
        retention.forget_changes(upto)
        if retention.is_full:
            self._writer.prune()
        if not retention.is_full:
            self._has_room.set()

    async def run(self) -> None:
        """Replicate until cancelled; raises `UnusableReplica` if the file is no replica or of another app."""
        try:
            async with sole_writer(self._settings.replica_file, self._must_wait):
                await self._run()
        finally:
            self._status.phase = "stopped"

    async def _run(self) -> None:
        try:
            if self._settings.replica_file.exists():
                self._open(self._existing_replica())
            while True:
                await self._attempt()
        finally:
            self._checkpoints.wait()
            if self._writer is not None:
                self._writer.close()

    def _existing_replica(self) -> ReplicaWriter:
        settings = self._settings
        if not is_seed(settings.replica_file):
            return open_writer(settings.replica_file, settings.origin)
        event(log, logging.INFO, "making the replica from a seed", replica=settings.replica_file)
        return load_seed(settings.replica_file, settings.origin)

    def _must_wait(self) -> None:
        self._status.phase = "waiting"
        self._status.error = f"another replicator is writing {self._settings.replica_file}"
        event(log, logging.WARNING, "waiting for another replicator to end", replica=self._settings.replica_file)

    async def _attempt(self) -> None:
        """Run one connection; sleep after it if it failed."""
        self._status.attempts += 1
        if self._writer is not None and not self._writer.is_in_place:
            self._replica_lost(self._writer)
        try:
            if self._writer is None or self._must_reset:
                await self._initial_sync()
            else:
                await self._follow_in_place(self._writer)
        except _RETRIED as error:
            self._record_failure(error)
            self._status.phase = "waiting"
            await asyncio.sleep(self._backoff.seconds())

    def _record_failure(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        repeated = text == self._status.error
        self._status.error = text
        event(log, logging.DEBUG if repeated else logging.WARNING, "replication failed, trying again", error=text)
        if not isinstance(error, CannotApply):
            return
        if self._settings.auto_reset and self._misfit == text and self._writer is not None and not self._must_reset:
            event(log, logging.WARNING, "resetting: the same change does not fit again", error=text)
            self._must_reset = True
        self._misfit = text

    async def _initial_sync(self) -> None:
        settings, former = self._settings, self._writer
        self._status.phase = "initial-sync"
        event(log, logging.INFO, "initial sync begins", upstream=settings.shown_upstream, again=former is not None)
        handshake = settings.handshake()
        async with connect(settings.url(handshake)) as upstream:
            make = load_new if former is None else load_over
            load = make(settings.replica_file, settings.origin)
            try:
                intake = InitialIntake(handshake, load, None if former is None else former.state.replica_version)
                await self._load(upstream, intake, load)
                writer = load.finish()
            except BaseException:
                load.abandon()
                raise
        if former is not None:
            former.close()
        self._must_reset = False
        self._status.reset_required = None
        self._worked()
        self._open(writer)
        event(log, logging.INFO, "initial sync complete", rows=load.loaded, version=writer.state.version)

    async def _load(self, upstream: Upstream, intake: InitialIntake, load: InitialLoad) -> None:
        begun = reported = time.monotonic()
        while not intake.is_complete:
            intake.take(await upstream.receive())
            self._status.rows_loaded = load.loaded
            now = time.monotonic()
            if now - reported >= PROGRESS_SECONDS:
                reported = now
                event(
                    log, logging.INFO, "initial sync", rows=load.loaded, per_second=round(load.loaded / (now - begun))
                )

    def _open(self, writer: ReplicaWriter) -> None:
        self._writer = writer
        leave_to_others(writer.connection)  # a checkpoint within a commit would delay the stream
        self._status.error = None
        writer.retention.max_logged = self._settings.max_logged
        self._announce(writer)

    async def _follow_in_place(self, writer: ReplicaWriter) -> None:
        """Follow the source until the connection ends or the replica file is deleted or replaced."""
        following = asyncio.ensure_future(self._follow(writer))
        moved = asyncio.ensure_future(_until_moved(writer))
        try:
            await asyncio.wait((following, moved), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (following, moved):
                task.cancel()
            await asyncio.gather(following, moved, return_exceptions=True)
        if not writer.is_in_place:
            self._replica_lost(writer)
        elif not following.cancelled():
            following.result()

    def _replica_lost(self, writer: ReplicaWriter) -> None:
        """Close a file that was deleted or replaced; open the one that replaced it, if any."""
        path = self._settings.replica_file
        writer.close()
        self._writer, self._must_reset, self._misfit = None, False, None
        self._status.version = self._status.replica_version = None
        if path.exists():
            event(
                log,
                logging.ERROR,
                "the replica's file was replaced while in use; opening the one that is there",
                file=path,
            )
            self._open(open_writer(path, self._settings.origin))
        else:
            event(log, logging.ERROR, "the replica's file was deleted while in use; syncing again", file=path)

    async def _follow(self, writer: ReplicaWriter) -> None:
        await self._wait_for_room(writer)
        state = writer.state
        handshake = self._settings.handshake(state.version, state.replica_version)
        async with connect(self._settings.url(handshake)) as upstream:
            self._status.phase = "following"
            event(log, logging.INFO, "following", upstream=self._settings.shown_upstream, after=state.version)
            intake = LiveIntake(handshake, writer)
            try:
                await self._stream(upstream, intake, writer)
            finally:
                intake.abort()

    async def _stream(self, upstream: Upstream, intake: LiveIntake, writer: ReplicaWriter) -> None:
        """Apply the available messages, make them durable, announce and acknowledge them, until a reset is due."""
        while not self._must_reset:
            batch = await upstream.receive()
            intake.take(batch)
            self._status.messages += len(batch)
            if intake.wants_flush:
                await self._flush(upstream, intake, writer)
            if intake.reset is not None:
                self._take_reset(intake)

    async def _flush(self, upstream: Upstream, intake: LiveIntake, writer: ReplicaWriter) -> None:
        before = writer.state.version
        ack = intake.flush()
        if writer.state.version != before:
            self._worked()
            self._status.applied(intake.commit_time_ms)
            self._status.transactions += intake.take_count()
            self._announce(writer)
        if ack is not None:
            await upstream.send(ack)
        await self._wait_for_room(writer)

    def _worked(self) -> None:
        self._backoff.reset()
        self._status.error = self._misfit = None

    def _announce(self, writer: ReplicaWriter) -> None:
        state = writer.state
        self._status.version, self._status.replica_version = state.version, state.replica_version
        for listener in self._listeners:
            listener(state)
        self._checkpoints.after_commit(writer.connection)
        if self._wal.shrink(writer.connection):
            # The WAL could not be truncated: announce again, so that readers take new snapshots.
            for listener in self._listeners:
                listener(state)

    def _take_reset(self, intake: LiveIntake) -> None:
        """Reset if `auto_reset` is on; otherwise report it and continue, as long as the source does."""
        assert intake.reset is not None
        reason = intake.reset.message or "no reason given"
        intake.reset = None
        self._status.reset_required = reason
        self._must_reset = self._settings.auto_reset
        what = (
            "resetting: the source requires it"
            if self._must_reset
            else "the source requires a reset; automatic resets are off"
        )
        event(log, logging.WARNING, what, reason=reason)

    async def _wait_for_room(self, writer: ReplicaWriter) -> None:
        """Pause while the reader of the replica is too far behind."""
        if not writer.retention.is_full:
            return
        self._status.phase = "paused"
        event(log, logging.WARNING, "paused: the reader of the replica is behind", logged=writer.retention.logged)
        while writer.retention.is_full:
            self._has_room.clear()
            await self._has_room.wait()
        self._status.phase = "following"
        event(log, logging.INFO, "continuing: the reader has caught up", logged=writer.retention.logged)


async def _until_moved(writer: ReplicaWriter) -> None:
    while writer.is_in_place:  # noqa: ASYNC110 - there is no event for a deleted file
        await asyncio.sleep(CHECK_FILE_SECONDS)
