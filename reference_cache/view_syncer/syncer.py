"""The view syncer: client groups over one replica, each told exactly what its clients lack.

It follows the replica with one task: told that there may be a new version, it goes straight to the newest, evaluates
the changes once for everybody, records them, and hands each group that is concerned its part. While it works, commits
pile up and become one step; when idle, each goes out at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from protocol.sync.errors import ErrorKind, SyncError
from protocol.sync.messages import ClientSchema, InitConnection
from reference_cache.memory import Reclaimer
from reference_cache.replica.change_log import SchemaChanged, Truncate, changes_between
from reference_cache.replica.errors import ChangesForgotten
from reference_cache.view_syncer.admission import Admission
from reference_cache.view_syncer.api import (
    ClientInfo,
    Connection,
    Downstream,
    Outgoing,
    SyncerOptions,
    SyncerStatus,
    Transformer,
)
from reference_cache.view_syncer.client_connection import ClientConnection, to_the_end
from reference_cache.view_syncer.client_group import ClientGroup
from reference_cache.view_syncer.cvr.client_schema import check_client_schema
from reference_cache.view_syncer.cvr.file import CvrFile, is_full
from reference_cache.view_syncer.cvr.groups import GroupStore
from reference_cache.view_syncer.cvr.owner import GroupOwner, Proof
from reference_cache.view_syncer.cvr.retention import Retention
from reference_cache.view_syncer.failures import query_failed
from reference_cache.view_syncer.mutation_data import Confirmed, MutationTables
from reference_cache.view_syncer.pipelines.driver import Pipelines, Step
from reference_cache.view_syncer.pipelines.pacing import Pace
from reference_cache.view_syncer.pipelines.views import StepPatches, View
from reference_cache.view_syncer.services import Services

log = logging.getLogger(__name__)

HOUSEKEEPING = 1.0
"""Seconds between looks for groups that have been alone for long enough."""

AT_ONCE = 100
"""Groups and queries forgotten in one go when there is no room."""

PURGING = 600.0
"""Seconds between looks for what has been gone for too long."""


class ViewSyncer:
    """All client groups. Invariant: a group in `_groups` has clients, had some until lately, or is to get some."""

    def __init__(self, options: SyncerOptions, transformer: Transformer) -> None:
        self._options = options
        file = CvrFile(options.cvr_file, options.records_bytes)
        mutations = MutationTables(options.app_id, options.shard_num)
        self._permissions_table = f"{options.app_id}.permissions"
        watched = (mutations.clients, mutations.mutations, self._permissions_table)
        pace = Pace(options.time_slice)
        pipelines = Pipelines(options, file, watched, pace)
        pipelines.notify = self.notify
        stores = GroupStore(file), Retention(file)
        self._services = Services(options, transformer, file, *stores, pipelines, mutations, pace)
        pipelines.on_ended = self._services.whole_views.forget
        self._reclaimer = Reclaimer()
        self._groups: dict[str, ClientGroup] = {}
        self._news = asyncio.Event()
        self._ready = asyncio.Event()
        self._advanced = asyncio.Event()
        self._told = ""

    # --- life ---

    async def start(self) -> None:
        """Wait for the replica, then follow it."""
        while not self._open():
            self._news.clear()
            await self._news.wait()
        self._announce()
        services = self._services
        services.background(self._follow())
        services.background(self._keep_house())

    def _open(self) -> bool:
        services = self._services
        try:
            state = services.pipelines.start()
        except FileNotFoundError:
            return False
        services.file.renew()
        if services.file.replica_version != state.replica_version:
            services.file.start_over(state.replica_version)
        services.read_permissions = None
        services.whole_views.clear()
        self._note_missed_changes()
        self._admit_if_current()
        return True

    def _admit_if_current(self) -> None:
        """Clients may have seen more than a restored replica has: then nobody is served until it has caught up."""
        if self._services.pipelines.version >= self._services.file.data_version:
            self._ready.set()
        else:
            self._ready.clear()

    def _note_missed_changes(self) -> None:
        """Remember the results that went away while nobody looked."""
        services, pipelines = self._services, self._services.pipelines
        after, table = services.file.data_version, services.mutations.mutations
        if not after or table not in pipelines.schema.tables:
            return
        try:
            logged = list(changes_between(pipelines.connection, pipelines.schema, after, pipelines.version, {table}))
        except ChangesForgotten:
            return
        if any(isinstance(each.change, Truncate | SchemaChanged) for each in logged):
            return  # the table was emptied or is another one: clients keep results they do not need
        confirmed = services.mutations.by_group(logged, pipelines.schema)
        self._remember_dropped(confirmed, pipelines.version)

    async def stop(self) -> None:
        """Write what is to be written and let go of everything; queries that are being started are given up."""
        self._services.pipelines.stop_starting()
        tasks = list(self._services.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with self._services.pipelines.lock:
            for group in self._groups.values():
                for connection in list(group.clients.values()):
                    connection.leave()
                    group.disconnect(connection)
                group.stop()
            self._groups.clear()
            self._services.pipelines.close()
            self._services.file.close()

    def notify(self) -> None:
        """The replica may have a new version."""
        self._news.set()

    async def reached(self, version: str) -> None:
        """Wait until all clients have been told of everything up to a version of the replica."""
        while self._told < version:
            await self._advanced.wait()

    @property
    def version(self) -> str | None:
        """The version of the replica that the queries are at."""
        return self._services.pipelines.version or None

    @property
    def has_replica(self) -> bool:
        """Whether there is a replica to serve clients from; not while it is deleted and yet to be synced again."""
        return self._services.pipelines.is_in_place

    @property
    def read_version(self) -> str | None:
        """The version up to which the replica's change log is not needed any more."""
        return self._services.pipelines.read_version or None

    def status(self) -> SyncerStatus:
        """What is going on."""
        status, pipelines = self._services.status, self._services.pipelines
        status.version = self.version
        status.groups = len(self._groups)
        status.clients = sum(len(group.clients) for group in self._groups.values())
        status.queries = len(pipelines.live)
        status.rows = sum(len(live.rows) for live in pipelines.live.values())
        return status

    # --- clients ---

    async def connect(self, client: ClientInfo, init: InitConnection, downstream: Downstream) -> Connection:
        """Admit a client; on return it is up to date."""
        await self._ready.wait()
        named = await self._services.transformer.validate(client.credentials)
        if not downstream.is_open:
            # The application took its time, and the client may be back: it must not be displaced by its own past.
            raise SyncError(ErrorKind.REHOME, "The client has gone while its credentials were checked")
        proof = Proof(named or client.auth_data is not None, client.secret)
        work = asyncio.ensure_future(self._connect(Admission(client, init, proof), downstream))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(_close_unwanted)
            raise

    async def _connect(self, admission: Admission, downstream: Downstream) -> ClientConnection:
        client = admission.client
        group = self._group(admission)
        connection = ClientConnection(client, admission.proof, group, downstream)
        group.pending += 1
        try:
            await group.connect(connection, admission)
        except BaseException:
            connection.leave()
            group.disconnect(connection)
            raise
        finally:
            group.pending -= 1
            group.rest_if_alone()
            if group.is_new and not group.pending:
                self._groups.pop(client.group_id, None)
        return connection

    def _group(self, admission: Admission) -> ClientGroup:
        """The client's group: in use, remembered, or new."""
        services, client = self._services, admission.client
        takes_credentials = self._options.takes_credentials
        cookie = client.base_cookie
        if cookie is not None and not services.retention.reaches_back_to(client.group_id, cookie):
            raise SyncError(ErrorKind.CLIENT_NOT_FOUND, "Client not found: it has been away for too long")
        group = self._groups.get(client.group_id)
        if group is not None:
            admission.check_known(group.stored, group.config.version, takes_credentials=takes_credentials)
            return group
        stored = services.groups.load(client.group_id)
        if stored is None:
            admission.check_new()
            schema = admission.init.client_schema
            assert isinstance(schema, ClientSchema)
            owner = GroupOwner().after(admission.proof)
            stored = services.groups.new(client.group_id, client.user_id, schema, owner)
            group = ClientGroup(stored, services, is_new=True)
        else:
            newest = max(stored.config.version, services.file.data_version)
            admission.check_known(stored, newest, takes_credentials=takes_credentials)
            group = ClientGroup(stored, services, is_new=False)
            group.view.resume(client.base_cookie)
        self._groups[client.group_id] = group
        return group

    # --- data ---

    async def _follow(self) -> None:
        """Go to the newest version whenever there is one."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._advance()
            except Exception as error:
                log.exception("the replica's newest version could not be taken in; all queries are started again")
                if is_full(error) and not self._services.file.is_in_memory:
                    self._services.file.leave_disk()
                    log.error("the disk of the client records is full: they are kept in memory until a restart")
                await self._restart(SyncError(ErrorKind.REHOME, "The cache starts its queries anew"))

    async def _advance(self) -> None:
        services = self._services
        async with services.pipelines.lock:
            newest = services.pipelines.newest()
            if newest is not None and newest.replica_version == services.file.replica_version:
                began = time.perf_counter()
                step = await services.pipelines.advance()
                if step is not None:
                    await self._tell(step)
                    self._note_duration((time.perf_counter() - began) * 1000)
                    self._announce()
                return
        await self._restart(SyncError(ErrorKind.CLIENT_NOT_FOUND, "Client not found: the replica was made anew"))

    def _note_duration(self, milliseconds: float) -> None:
        durations = self._services.status.extra
        durations["lastStepMs"] = round(milliseconds, 3)
        durations["longestStepMs"] = max(durations.get("longestStepMs", 0.0), durations["lastStepMs"])

    def _announce(self) -> None:
        self._told = self._services.pipelines.version
        self._advanced.set()
        self._advanced = asyncio.Event()

    async def _restart(self, error: SyncError) -> None:
        """Part from everybody and begin again with the replica there is; whoever is connected must come again."""
        async with self._services.pipelines.lock:
            for group in self._groups.values():
                group.fail(error)
                group.stop()
            self._groups.clear()
            if self._open():
                self._announce()
            else:
                self._ready.clear()

    async def _tell(self, step: Step) -> None:
        """Hand each group what a step means to it."""
        services = self._services
        services.status.advances += 1
        if step.patches or step.reset is not None:
            services.whole_views.clear()
        if step.reset is not None or step.failed:
            self._part_with_misfits(step)
        confirmed = self._confirmed(step)
        patches = StepPatches(step.patches)
        rows: dict[View, list[bytes]] = {}
        pokes: dict[Any, Outgoing] = {}
        touched = {group: None for live in step.patches for group in live.groups}
        touched |= {group: None for each in confirmed if (group := self._groups.get(each)) and group.view.active}
        async for group in services.pace.sliced(touched, every=16):
            queries = group.view.queries
            if queries not in rows:
                rows[queries] = await services.chunks(patches.of(queries))
            told = confirmed.get(group.config.group_id)
            if rows[queries] or told is not None:
                group.step(step.version, rows[queries], told, pokes)
        if not self._ready.is_set():
            self._admit_if_current()

    def _confirmed(self, step: Step) -> dict[str, Confirmed]:
        """The mutations that the step confirms, by group; and the rules it changes."""
        services = self._services
        if step.reset is not None:
            self._restrict_again()
            active = {id: group.view for id, group in self._groups.items() if group.view.active}
            found = {id: view.confirmed_since(view.data_version) for id, view in active.items()}
            return {id: each for id, each in found.items() if each.version}
        if any(each.table == self._permissions_table for each in step.watched):
            self._restrict_again()
        confirmed = services.mutations.by_group(step.watched, services.pipelines.schema)
        self._remember_dropped(confirmed, step.version)
        return confirmed

    def _remember_dropped(self, confirmed: dict[str, Confirmed], version: str) -> None:
        gone = [
            (group_id, *mutation)
            for group_id, each in confirmed.items()
            for mutation, patch in each.results.items()
            if patch["op"] == "del"
        ]
        if gone:
            with self._services.file.transaction(version):
                self._services.groups.drop_results(gone, version)

    def _restrict_again(self) -> None:
        self._services.read_permissions = None
        for group in self._groups.values():
            if any(query.ast is not None for query in group.config.wanted()):
                self._services.background(self._restrict(group))

    async def _restrict(self, group: ClientGroup) -> None:
        try:
            await group.restrict_again()
        except SyncError as error:
            group.fail(error)

    def _part_with_misfits(self, step: Step) -> None:
        """Part from groups that cannot go on: the tables are others now, or one of their queries was stopped."""
        for group_id, group in list(self._groups.items()):
            error = self._misfit(group, step)
            if error is not None:
                group.fail(error)
                group.stop()
                del self._groups[group_id]

    def _misfit(self, group: ClientGroup, step: Step) -> SyncError | None:
        services = self._services
        try:
            check_client_schema(group.stored.client_schema, services.pipelines.schema)
        except SyncError as error:
            return error
        failed = [step.failed[live] for live in group.view.queries if live in step.failed]
        if failed:
            return query_failed(failed[0])
        if any(live.choice != group.view.choice for live in group.view.queries):
            return SyncError(ErrorKind.REHOME, "the keys of tables have changed")
        return None

    # --- housekeeping ---

    async def _keep_house(self) -> None:
        """Stop the queries of groups that nobody came back to, and forget groups nobody has used for long."""
        purged = time.monotonic()
        while True:
            await asyncio.sleep(min(HOUSEKEEPING, self._options.linger or HOUSEKEEPING))
            await to_the_end(self.stop_abandoned())
            self._services.file.tidy()
            if self._reclaimer.is_due():
                self._services.file.release_memory()
                await asyncio.to_thread(self._reclaimer.give_back)
            if not self._services.file.measure():
                self.make_room()
            if time.monotonic() - purged > PURGING:
                purged = time.monotonic()
                self.purge()

    async def stop_abandoned(self) -> None:
        """Stop the queries of groups whose last client has been gone for long enough."""
        latest = self._options.clock() - self._options.linger
        for group_id, group in list(self._groups.items()):
            if group.is_abandoned(latest):
                async with group.lock, self._services.pipelines.lock:
                    if group.is_abandoned(latest):
                        group.stop()
                        self._groups.pop(group_id, None)
                        self._reclaimer.freed()

    async def evict_expired(self) -> None:
        """Drop all queries whose time is over, without waiting for the groups' own timers."""
        for group in list(self._groups.values()):
            await group.evict_expired()

    def make_room(self) -> int:
        """The records take too much: forget some of the groups that nobody uses, longest first; how many."""
        services = self._services
        idle = [each for each in services.groups.idle_since(time.time()) if each not in self._groups][:AT_ONCE]
        with services.file.transaction():
            for group_id in idle:
                services.groups.delete(group_id)
            running = (live.id for live in services.pipelines.live.values())
            forgotten = services.pipelines.records.forget_unused(running, AT_ONCE)
        if idle or forgotten:
            log.warning("client records take too much room: %d unused groups forgotten", len(idle))
        return len(idle)

    def purge(self) -> int:
        """Forget groups nobody has used for long, and what has been gone for as long; how many groups."""
        services = self._services
        now = time.time()
        long_ago = now - self._options.forget_groups_after
        idle = services.groups.idle_since(long_ago)
        with services.file.transaction():
            services.retention.note_age(now)
            services.retention.forget(services.retention.version_at(long_ago), self._groups.keys())
            gone = [group_id for group_id in idle if group_id not in self._groups]
            for group_id in gone:
                services.groups.delete(group_id)
            services.pipelines.records.forget_unused(services.pipelines.recorded_ids())
        return len(gone)


def _close_unwanted(work: asyncio.Future[ClientConnection]) -> None:
    """The caller has gone while its client was being admitted."""
    if not work.cancelled() and work.exception() is None:
        connection = work.result()
        connection.leave()
        connection.group.disconnect(connection)
