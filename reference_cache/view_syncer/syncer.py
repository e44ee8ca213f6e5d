"""The view syncer: admits clients to their groups, follows the replica, and pokes the groups that changes affect.

One task follows the replica. When it is notified of a new version, it advances to the newest one, evaluates the changes
once for all groups, records them in the CVR file, and pokes each group they affect. Commits that arrive during a step
become one step together.
"""

from __future__ import annotations

import asyncio
import logging
import time

from protocol.sync.errors import ErrorKind, SyncError
from protocol.sync.messages import ClientSchema, InitConnection
from reference_cache.replica.change_log import SchemaChanged, Truncated, changes_between
from reference_cache.replica.errors import ChangesForgotten
from reference_cache.view_syncer.admission import GroupAdmission
from reference_cache.view_syncer.api import (
    ClientInfo,
    Downstream,
    Outgoing,
    SyncerConnection,
    SyncerOptions,
    SyncerStatus,
    Transformer,
)
from reference_cache.view_syncer.client_connection import ClientConnection
from reference_cache.view_syncer.client_group import ClientGroup
from reference_cache.view_syncer.cvr.client_schema import check_client_schema
from reference_cache.view_syncer.cvr.file import CvrFile, is_full
from reference_cache.view_syncer.cvr.groups import GroupStore
from reference_cache.view_syncer.cvr.owner import GroupOwner, Proof
from reference_cache.view_syncer.cvr.retention import Retention
from reference_cache.view_syncer.failures import query_failed
from reference_cache.view_syncer.housekeeping import Housekeeping
from reference_cache.view_syncer.mutation_data import Confirmed, MutationTables
from reference_cache.view_syncer.pipelines.driver import Pipelines, VersionStep
from reference_cache.view_syncer.pipelines.pacing import Pace
from reference_cache.view_syncer.pipelines.views import StepPatches, View
from reference_cache.view_syncer.read_permissions import DeployedPermissions
from reference_cache.view_syncer.services import Services

log = logging.getLogger(__name__)


class ViewSyncer:
    """All client groups. Invariant: a group in `_groups` has clients, had some within `linger`, or one is connecting.

    Everything runs on the event loop. Take `ClientGroup.lock` before `Pipelines.lock`.
    """

    def __init__(self, options: SyncerOptions, transformer: Transformer) -> None:
        self._options = options
        file = CvrFile(options.cvr_file, options.records_bytes)
        mutations = MutationTables(options.app_id, options.shard_num)
        permissions = DeployedPermissions(options.app_id)
        pace = Pace(options.time_slice)
        pipelines = Pipelines(options, file, (mutations.clients, mutations.mutations, permissions.table), pace)
        pipelines.notify = self.notify
        self._services = Services(
            options=options,
            transformer=transformer,
            file=file,
            groups=GroupStore(file),
            retention=Retention(file),
            pipelines=pipelines,
            mutations=mutations,
            permissions=permissions,
            pace=pace,
        )
        pipelines.on_ended = self._services.whole_views.forget
        # Groups in use, by id. `_group` adds; failed connects, misfits, restarts and `housekeeping` remove.
        self._groups: dict[str, ClientGroup] = {}
        self.housekeeping = Housekeeping(self._services, self._groups)
        # Set by `notify`; the following task clears it before it reads the replica's version.
        self._wakeup = asyncio.Event()
        # Set while clients are admitted: there is a replica, and it is not older than the CVR file.
        self._ready = asyncio.Event()
        # The newest version that all clients have been sent; written by `_announce`.
        self._announced_version = ""
        # Set, and replaced by a new event, when `_announced_version` changes; wakes `reached`.
        self._advanced = asyncio.Event()

    # --- life ---

    async def start(self) -> None:
        """Wait for the replica, then follow it."""
        while not self._open():
            self._wakeup.clear()
            await self._wakeup.wait()
        self._announce()
        services = self._services
        services.background(self._follow())
        services.background(self.housekeeping.run())

    def _open(self) -> bool:
        """Open the replica and the CVR file that belongs to it; returns False if there is no replica."""
        services = self._services
        try:
            state = services.pipelines.start()
        except FileNotFoundError:
            return False
        services.file.renew()
        if services.file.replica_version != state.replica_version:
            services.file.start_over(state.replica_version)
        services.permissions.forget()
        services.whole_views.clear()
        self._note_missed_changes()
        self._admit_if_current()
        return True

    def _admit_if_current(self) -> None:
        """Admit clients, unless the replica is older than what clients have seen: it may be a restored backup."""
        if self._services.pipelines.version >= self._services.file.data_version:
            self._ready.set()
        else:
            self._ready.clear()

    def _note_missed_changes(self) -> None:
        """Record the mutation results that were deleted while the cache was not running."""
        services, pipelines = self._services, self._services.pipelines
        after, table = services.file.data_version, services.mutations.mutations
        if not after or table not in pipelines.schema.tables:
            return
        try:
            logged = list(changes_between(pipelines.connection, pipelines.schema, after, pipelines.version, {table}))
        except ChangesForgotten:
            return
        if any(isinstance(each.change, Truncated | SchemaChanged) for each in logged):
            # Single deletions are unknown then. Clients keep results that they no longer need, which is harmless.
            return
        confirmed = services.mutations.by_group(logged, pipelines.schema)
        self._record_dropped(confirmed, pipelines.version)

    async def stop(self) -> None:
        """Disconnect all clients, stop all queries, also those being started, and close the files."""
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
        """Wake the task that follows the replica, because there may be a new version. Call on the event loop."""
        self._wakeup.set()

    async def reached(self, version: str) -> None:
        """Wait until all clients have been sent everything up to this version of the replica."""
        while self._announced_version < version:
            await self._advanced.wait()

    @property
    def version(self) -> str | None:
        """The version of the replica that the queries are at; None before the first."""
        return self._services.pipelines.version or None

    @property
    def has_replica(self) -> bool:
        """Whether there is a replica to serve clients from; False while a deleted one is being synced again."""
        return self._services.pipelines.is_in_place

    @property
    def read_version(self) -> str | None:
        """The version up to which the replica's change log is no longer needed; None before the replica is open."""
        return self._services.pipelines.read_version or None

    def status(self) -> SyncerStatus:
        status, pipelines = self._services.status, self._services.pipelines
        status.version = self.version
        status.groups = len(self._groups)
        status.clients = sum(len(group.clients) for group in self._groups.values())
        status.queries = len(pipelines.live)
        status.rows = sum(len(live.rows) for live in pipelines.live.values())
        return status

    # --- clients ---

    async def connect(self, client: ClientInfo, init: InitConnection, downstream: Downstream) -> SyncerConnection:
        """Admit a client; on return its first poke has been sent. Raises `SyncError`."""
        await self._ready.wait()
        named = await self._services.transformer.validate(client.credentials)
        if not downstream.is_open:
            # The client may have reconnected while the application checked: the new connection must not be replaced.
            raise SyncError(ErrorKind.REHOME, "The client disconnected while its credentials were checked")
        proof = Proof(named or client.auth_data is not None, client.secret)
        # Shielded: if the socket closes, the caller is cancelled, and the group must not be left half changed.
        work = asyncio.ensure_future(self._connect(GroupAdmission(client, init, proof), downstream))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(_close_unwanted)
            raise

    async def _connect(self, admission: GroupAdmission, downstream: Downstream) -> ClientConnection:
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

    def _group(self, admission: GroupAdmission) -> ClientGroup:
        """The client's group, loaded or made if it is not in use. Raises `SyncError` if the client may not join it."""
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
        """Advance whenever notified. After an error all queries are restarted, and all clients reconnect."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            try:
                await self._advance()
            except Exception as error:
                log.exception("the replica's newest version could not be taken in; all queries are started again")
                if is_full(error) and not self._services.file.is_in_memory:
                    self._services.file.leave_disk()
                    log.error("the disk of the client records is full: they are kept in memory until a restart")
                await self._restart(SyncError(ErrorKind.REHOME, "The cache restarts its queries"))

    async def _advance(self) -> None:
        """Go to the newest version and poke; if the replica was replaced, disconnect all clients and reopen it."""
        services = self._services
        async with services.pipelines.lock:
            newest = services.pipelines.newest()
            if newest is not None and newest.replica_version == services.file.replica_version:
                began = time.perf_counter()
                step = await services.pipelines.advance()
                if step is not None:
                    await self._poke(step)
                    self._note_duration((time.perf_counter() - began) * 1000)
                    self._announce()
                return
        await self._restart(
            SyncError(ErrorKind.CLIENT_NOT_FOUND, "Client not found: the replica was synced from scratch")
        )

    def _note_duration(self, milliseconds: float) -> None:
        durations = self._services.status.extra
        durations["lastStepMs"] = round(milliseconds, 3)
        durations["longestStepMs"] = max(durations.get("longestStepMs", 0.0), durations["lastStepMs"])

    def _announce(self) -> None:
        """Note that all clients have been sent everything up to the pipelines' version, and wake `reached`."""
        self._announced_version = self._services.pipelines.version
        self._advanced.set()
        self._advanced = asyncio.Event()

    async def _restart(self, error: SyncError) -> None:
        """Disconnect all clients with this error and reopen the replica; clients reconnect on their own."""
        async with self._services.pipelines.lock:
            for group in self._groups.values():
                group.fail(error)
                group.stop()
            self._groups.clear()
            if self._open():
                self._announce()
            else:
                self._ready.clear()

    async def _poke(self, step: VersionStep) -> None:
        """Poke each group that a step affects. Call with the pipelines' lock."""
        services = self._services
        services.status.advances += 1
        if step.patches or step.reset is not None:
            services.whole_views.clear()
        if step.reset is not None or step.failed:
            self._disconnect_misfits(step)
        confirmed = self._confirmed(step)
        patches = StepPatches(step.patches)
        # Rows are encoded once for all groups with the same queries; those at the same cookie share the poke, too.
        rows: dict[View, list[bytes]] = {}
        pokes: dict[tuple[View, str], Outgoing] = {}
        touched = {group: None for live in step.patches for group in live.groups}
        touched |= {group: None for each in confirmed if (group := self._groups.get(each)) and group.view.active}
        async for group in services.pace.sliced(touched, every=16):
            queries = group.view.queries
            if queries not in rows:
                rows[queries] = await services.chunks(patches.of(queries))
            mutations = confirmed.get(group.config.group_id)
            if rows[queries] or mutations is not None:
                group.step(step.version, rows[queries], mutations, pokes)
        if not self._ready.is_set():
            self._admit_if_current()

    def _confirmed(self, step: VersionStep) -> dict[str, Confirmed]:
        """The mutations that the step confirms, by group. Also applies read permissions that the step changed."""
        services = self._services
        if step.reset is not None:
            # A reset reports no single changes, so permissions and mutations are read from the replica.
            self._restrict_again()
            active = {id: group.view for id, group in self._groups.items() if group.view.active}
            since = {id: view.confirmed_since(view.data_version) for id, view in active.items()}
            return {id: each for id, each in since.items() if each.version}
        if any(each.table == services.permissions.table for each in step.watched):
            self._restrict_again()
        confirmed = services.mutations.by_group(step.watched, services.pipelines.schema)
        self._record_dropped(confirmed, step.version)
        return confirmed

    def _record_dropped(self, confirmed: dict[str, Confirmed], version: str) -> None:
        """Record the mutation results that were deleted: the replica no longer has them for clients that reconnect."""
        dropped = [
            (group_id, *mutation)
            for group_id, each in confirmed.items()
            for mutation, patch in each.results.items()
            if patch["op"] == "del"
        ]
        if dropped:
            with self._services.file.transaction(version):
                self._services.groups.drop_results(dropped, version)

    def _restrict_again(self) -> None:
        """Apply changed read permissions to the ad hoc queries of all groups, in the background."""
        self._services.permissions.forget()
        for group in self._groups.values():
            if any(query.ast is not None for query in group.config.wanted()):
                self._services.background(self._restrict(group))

    async def _restrict(self, group: ClientGroup) -> None:
        try:
            await group.restrict_again()
        except SyncError as error:
            group.fail(error)

    def _disconnect_misfits(self, step: VersionStep) -> None:
        """Disconnect the groups that cannot continue: tables have changed, or one of their queries was stopped."""
        for group_id, group in list(self._groups.items()):
            error = self._misfit(group, step)
            if error is not None:
                group.fail(error)
                group.stop()
                del self._groups[group_id]

    def _misfit(self, group: ClientGroup, step: VersionStep) -> SyncError | None:
        """The error if a group cannot continue, else None."""
        services = self._services
        try:
            check_client_schema(group.stored.client_schema, services.pipelines.schema)
        except SyncError as error:
            return error
        failed = [step.failed[live] for live in group.view.queries if live in step.failed]
        if failed:
            return query_failed(failed[0])
        if any(live.choice != group.view.choice for live in group.view.queries):
            return SyncError(ErrorKind.REHOME, "The keys of tables have changed")
        return None


def _close_unwanted(work: asyncio.Future[ClientConnection]) -> None:
    """Disconnect a client whose caller was cancelled while it was being admitted."""
    if not work.cancelled() and work.exception() is None:
        connection = work.result()
        connection.leave()
        connection.group.disconnect(connection)
