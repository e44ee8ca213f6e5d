"""A client group in use: its clients, their desired queries, and its view.

The desired queries change first (`GroupEdit`, stored at once), then the view follows: queries are transformed, started
or dropped, and the `GroupView` switches to the new set in one step, which is stored before any client is poked. Changed
data moves the view through `step`. All clients are at the group's version while no call is running; a client that
reconnects is caught up from its own cookie first.

Calls hold the group's lock, and the pipelines' lock while they use rows. `step` is called with the latter only. That is
safe because a group is consistent at each of its awaits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from protocol import values
from protocol.sync.ast import Query
from protocol.sync.errors import ErrorKind, SyncError, overloaded
from protocol.sync.messages import Inspection, PutQuery, QueryPatch
from protocol.watermark import EMPTY
from reference_cache.credentials import Credentials
from reference_cache.replica.schema import ReplicaSchema
from reference_cache.view_syncer.admission import GroupAdmission
from reference_cache.view_syncer.api import InspectorAnswer, NamedQueryCall, Outgoing, QueryFailure
from reference_cache.view_syncer.client_connection import ClientConnection
from reference_cache.view_syncer.cvr.client_schema import check_client_schema
from reference_cache.view_syncer.cvr.config import GroupEdit, QueryConfig
from reference_cache.view_syncer.cvr.groups import StoredGroup
from reference_cache.view_syncer.cvr.owner import Proof
from reference_cache.view_syncer.failures import query_failed
from reference_cache.view_syncer.group_view import GroupView
from reference_cache.view_syncer.inspector import analysis, answer, subject
from reference_cache.view_syncer.mutation_data import Confirmed
from reference_cache.view_syncer.pipelines.live_query import LiveQuery
from reference_cache.view_syncer.pipelines.views import View
from reference_cache.view_syncer.pokes import PokeContent, compose
from reference_cache.view_syncer.read_permissions import ReadPermissions
from reference_cache.view_syncer.services import Services
from reference_cache.view_syncer.ttl_clock import TtlClock

EVICTION_SLACK = 0.05
"""Seconds that an expired query may stay, so that several are dropped together."""


class ClientGroup:
    """A group in use. Invariant: each of `clients` has been sent everything up to the group's version, except while a
    call is poking them.

    Used on the event loop only.
    """

    def __init__(self, stored: StoredGroup, services: Services, *, is_new: bool) -> None:
        self.stored = stored
        self.config = stored.config
        self.view = GroupView(stored, services)
        self.lock = asyncio.Lock()
        self._services = services
        self._clock = TtlClock(stored.ttl_clock, services.options.clock)
        # Whether the group is still to be stored; `_store` clears it.
        self.is_new = is_new
        # The connected clients by id; written by `_admit`, `disconnect`, `fail` and `_note_owner`.
        self.clients: dict[str, ClientConnection] = {}
        # Clients that are connecting; written by `ViewSyncer`. While there are some the group is not abandoned.
        self.pending = 0
        # Set by `stop`, for calls that waited meanwhile.
        self.stopped = False
        # When the last client disconnected, on the options' clock; None while there are clients.
        self.idle_since: float | None = None
        # The rules that the running ad hoc queries were restricted by; written under the group's lock.
        self._restricted_by: ReadPermissions | None = None
        # The tables that were last compared with the clients' schema, and fit.
        self._fitting_schema: ReplicaSchema | None = None
        # The timer that drops expired queries; None if no query is to expire.
        self._eviction: asyncio.TimerHandle | None = None
        # Clients with a cookie before this version cannot be caught up; written by `_forget_ended`.
        self._forgotten_before = ""

    @property
    def ttl_clock(self) -> float:
        """The time on the group's TTL clock, in milliseconds."""
        return self._clock.now()

    def is_abandoned(self, latest: float) -> bool:
        """Whether the last client disconnected before this time and none is connecting."""
        return not self.clients and not self.pending and self.idle_since is not None and self.idle_since <= latest

    # --- connecting and disconnecting ---

    async def connect(self, connection: ClientConnection, admission: GroupAdmission) -> None:
        """Admit a client whose request has been checked; on return it has been poked to the group's version.

        Takes both locks. Raises `SyncError`; the caller then removes the connection with `disconnect`.
        """
        async with self.lock:
            # Checked before, but the group may have got an owner while this client waited for the lock.
            admission.check_owner(self.stored, self._services.options.takes_credentials)
            self._note_owner(connection)
            self._check_patch(admission.init.desired_queries_patch)
            self._check_room(admission.init.desired_queries_patch)
            self._services.options.limits.check_client(self.config, connection.client_id)
            if connection.cookie is not None and connection.cookie < self._forgotten_before:
                raise SyncError(
                    ErrorKind.CLIENT_NOT_FOUND,
                    "Client not found: too many of its queries have ended since it disconnected",
                )
            before = self.config.version
            edit = GroupEdit(self.config)
            connection.deleted_clients = admission.edit(edit, self._clock.now())
            self._store(edit)
            self._poke_desired_queries(edit)
            if connection.cookie == before or (connection.cookie is None and before == EMPTY):
                # It lacks only the edit: from here on it gets the same pokes as the other clients.
                connection.poke(self._desired_queries_poke(edit, connection.cookie), self.config.version)
                self._admit(connection)
            await self._sync_queries(connection, again=True)
            if connection.open and self.clients.get(connection.client_id) is not connection:
                async with self._services.pipelines.lock:
                    await self._catch_up([connection])
                    self._admit(connection)
            if admission.names_deleted:
                self._send_deleted(connection.deleted_clients)

    def _note_owner(self, connection: ClientConnection) -> None:
        """Store the proof of identity that a connection presents, and disconnect clients that cannot present it."""
        owner = self.stored.owner.after(connection.proof)
        if owner == self.stored.owner:
            return
        self.stored.owner = owner
        if not self.is_new:
            with self._services.file.transaction():
                self._services.groups.save_owner(self.config.group_id, owner)
        for other in list(self.clients.values()):
            refusal = owner.refusal(other.proof, self._services.options.takes_credentials)
            if refusal is not None and other is not connection:
                del self.clients[other.client_id]
                other.fail(refusal)

    def _admit(self, connection: ClientConnection) -> None:
        replaced = self.clients.get(connection.client_id)
        if replaced is not None:
            replaced.leave()
        self.clients[connection.client_id] = connection
        self._clock.start()
        self.idle_since = None

    def disconnect(self, connection: ClientConnection) -> None:
        """Remove a client whose socket is closed."""
        if self.clients.get(connection.client_id) is connection:
            del self.clients[connection.client_id]
            self.rest_if_alone()

    def rest_if_alone(self) -> None:
        """If no client is connected, stop the TTL clock and note the time: `linger` seconds later the queries stop."""
        if self.clients or self.idle_since is not None:
            return
        self._clock.stop()
        self.idle_since = self._services.options.clock()
        self._cancel_eviction()
        with self._services.file.transaction():
            self._services.groups.touch(self.config.group_id, self._clock.now(), time.time())

    def fail(self, error: SyncError) -> None:
        """Disconnect all clients with this error."""
        connections, self.clients = list(self.clients.values()), {}
        for connection in connections:
            connection.fail(error)
        self.rest_if_alone()

    def stop(self) -> None:
        """Stop the queries; the group is not used afterwards. Call with the pipelines' lock."""
        self.stopped = True
        self._cancel_eviction()
        self.view.stop(self)

    # --- requests of clients ---

    async def change_desired_queries(self, connection: ClientConnection, patch: Sequence[QueryPatch]) -> None:
        """Change a client's desired queries, and poke all clients. Raises `SyncError`."""
        async with self.lock:
            self._check_patch(patch)
            self._check_room(patch)
            edit = GroupEdit(self.config)
            edit.apply(connection.client_id, patch, self._clock.now())
            self._store(edit)
            self._poke_desired_queries(edit)
            await self._sync_queries(connection, again=False)
            self._forget_ended()

    async def delete_clients(self, connection: ClientConnection, client_ids: Sequence[str]) -> None:
        """Delete clients of the group, and send `deleteClients` to the connected ones. Raises `SyncError`."""
        async with self.lock:
            if connection.client_id in client_ids:
                raise SyncError(ErrorKind.INTERNAL, "cannot delete self")
            edit = GroupEdit(self.config)
            edit.remove_clients(client_ids, self._clock.now())
            self._store(edit)
            self._poke_desired_queries(edit)
            self._send_deleted(client_ids)
            await self._sync_queries(connection, again=False)

    def _send_deleted(self, client_ids: Sequence[str]) -> None:
        message = Outgoing((values.dumps(["deleteClients", {"clientIDs": list(client_ids)}]),))
        for connection in self.clients.values():
            connection.send(message)

    async def change_credentials(
        self,
        connection: ClientConnection,
        credentials: Credentials,
        auth_data: Mapping[str, Any] | None,
        secret: str | None,
    ) -> None:
        """Use a client's new credentials, once the application has accepted them. Raises `SyncError` if it does not."""
        named = await self._services.transformer.validate(credentials)
        async with self.lock:
            if self.clients.get(connection.client_id) is not connection:
                return
            connection.credentials, connection.auth_data = credentials, auth_data
            connection.proof = Proof(named or auth_data is not None, secret)
            self._note_owner(connection)
            await self._sync_queries(connection, again=True)

    async def transform_again(self, connection: ClientConnection) -> None:
        """Have the application transform the group's named queries again, with this client's credentials."""
        async with self.lock:
            await self._sync_queries(connection, again=True)

    async def restrict_again(self) -> None:
        """Apply changed read permissions to the ad hoc queries."""
        async with self.lock:
            requester = next(iter(self.clients.values()), None)
            if requester is not None:
                await self._sync_queries(requester, again=False)

    async def inspect(self, connection: ClientConnection, question: Inspection) -> InspectorAnswer:
        """Answer an inspector's question. Analyses of a query run aside, without a lock; others take both locks."""
        query = await subject(question, self._services, connection)
        if query is not None:
            work = partial(analysis, query, question)
            return await self._services.pipelines.examine(query, self.view.choice, lambda: connection.is_there, work)
        async with self.lock, self._services.pipelines.lock:
            return answer(question, self, self._services)

    # --- limits ---

    def _check_room(self, patch: Sequence[QueryPatch]) -> None:
        """Raise `SyncError` if the group, or the CVR file, has no room for the queries of a patch."""
        self._services.options.limits.check_patch(self.config, patch)
        if (self.is_new or patch) and not self._services.file.has_room:
            raise overloaded("The cache has no room for more client records")

    def _forget_ended(self) -> None:
        """Delete tombstones beyond their limit. Connected clients do not need them: they were sent the removals."""
        if not self.is_new and self._services.options.limits.must_forget(self.config):
            with self._services.file.transaction():
                self._forgotten_before = self._services.retention.forget_ended(self.stored)

    # --- desired queries ---

    def _check_patch(self, patch: Sequence[QueryPatch]) -> None:
        """Raise `SyncError` for ad hoc queries where they are refused."""
        if self._services.options.refuse_ad_hoc_queries and any(isinstance(op, PutQuery) and op.ast for op in patch):
            raise SyncError(ErrorKind.INVALID_MESSAGE, "Ad hoc queries are refused here; use a named query")

    def _store(self, edit: GroupEdit) -> None:
        """Store changed desired queries, and a new group with its first change."""
        if not edit.finish():
            return
        with self._services.file.transaction():
            if self.is_new:
                self._services.groups.create(self.stored, self._services.pipelines.version, time.time())
            self._services.groups.save(edit, self._clock.now())
        self.is_new = False

    def _poke_desired_queries(self, edit: GroupEdit) -> None:
        """Send the connected clients the changed desired queries of all clients."""
        if edit.changed and self.clients:
            poke = self._desired_queries_poke(edit, edit.before)
            for connection in self.clients.values():
                connection.poke(poke, self.config.version)

    def _desired_queries_poke(self, edit: GroupEdit, base: str | None) -> Outgoing:
        self._services.status.pokes += 1
        return compose(base, self.config.version, PokeContent(desired=edit.desired))

    async def _sync_queries(self, requester: ClientConnection, *, again: bool) -> None:
        """Make the view's queries the desired ones: start what is missing, drop what has expired, and poke the clients.

        Named queries are transformed with the requester's credentials; `again` transforms running queries, too. Call
        with the group's lock. Raises `SyncError`, with the view unchanged.
        """
        services = self._services
        self._check_schema()
        expired = self.config.expired(self._clock.now())
        if services.options.refuse_ad_hoc_queries:
            # The group may have been stored before the setting was changed.
            expired += [query.hash for query in self.config.wanted() if query.ast and query.hash not in expired]
        queries, failures = await self._transform(requester, set(expired), again)
        started = await self._start(queries, requester)
        async with services.pipelines.lock:
            self._check_started(started)
            self._send_failures(failures, requester)
            if self._switch(started, [*expired, *failures]) or self._is_behind():
                await self._catch_up(list(self.clients.values()))
        self._schedule_eviction()

    def _check_schema(self) -> None:
        """Raise `SyncError` if the tables do not fit the clients' schema; compared once per state of the tables."""
        schema = self._services.pipelines.schema
        if schema is not self._fitting_schema:
            check_client_schema(self.stored.client_schema, schema)
            self._fitting_schema = schema

    def _switch(self, started: dict[str, LiveQuery], dropped: Sequence[str]) -> bool:
        return self.view.switch(self, started, dropped, self._clock.now())

    def _is_behind(self) -> bool:
        return any(connection.cookie != self.config.version for connection in self.clients.values())

    async def _transform(
        self, requester: ClientConnection, expired: set[str], again: bool
    ) -> tuple[dict[str, Query], dict[str, QueryFailure]]:
        """The queries to start, transformed or restricted, and the application's refusals; both by hash.

        With changed read permissions, running ad hoc queries are restricted again, too.
        """
        wanted = [query for query in self.config.wanted() if query.hash not in expired]
        fresh = [query for query in wanted if again or query.hash not in self.view.running]
        permissions = self._services.read_permissions()
        ad_hoc = fresh if permissions is self._restricted_by else wanted
        self._restricted_by = permissions
        queries: dict[str, Query] = {}
        async for query in self._services.pace.sliced(ad_hoc, every=16):
            if query.ast is not None:
                queries[query.hash] = permissions.apply(query.ast, requester.auth_data)
        named = [_named(query) for query in fresh if query.ast is None]
        if not named:
            return queries, {}
        answers = await self._services.transformer.transform(requester.credentials, named)
        failures = {hash: answer for hash, answer in answers.items() if isinstance(answer, QueryFailure)}
        queries |= {hash: answer for hash, answer in answers.items() if isinstance(answer, Query)}
        return queries, failures

    async def _start(self, queries: Mapping[str, Query], requester: ClientConnection) -> dict[str, LiveQuery]:
        """Open the queries, by hash; ends when no client of the group is connected any more. Raises `SyncError`."""
        pipelines = self._services.pipelines
        choice = self.view.choice
        started: dict[str, LiveQuery] = {}

        def wanted() -> bool:
            return not self.stopped and (requester.is_there or any(each.is_there for each in self.clients.values()))

        try:
            for hash, query in queries.items():
                started[hash] = await pipelines.open(query, choice, wanted)
        except BaseException as error:
            async with pipelines.lock:
                pipelines.release(started.values())
            if isinstance(error, Exception) and not isinstance(error, SyncError):
                raise query_failed(error) from error
            raise
        return started

    def _check_started(self, started: Mapping[str, LiveQuery]) -> None:
        """Raise `SyncError`, and release the queries, if the view cannot switch to them; call with the pipelines' lock.

        The lock was not held while they were started, so tables may have changed, and queries may have stopped.
        """
        pipelines = self._services.pipelines
        try:
            running = all(pipelines.live.get(live.key) is live for live in started.values())
            if self.stopped or not running or any(live.choice != self.view.choice for live in started.values()):
                raise SyncError(ErrorKind.REHOME, "The cache restarts its queries")
            self._check_schema()
        except SyncError:
            pipelines.release(started.values())
            raise

    def _send_failures(self, failures: Mapping[str, QueryFailure], requester: ClientConnection) -> None:
        """Send each client the refusals of the queries that it desires."""
        for client_id, connection in {**self.clients, requester.client_id: requester}.items():
            bodies = [
                dict(failure.body)
                for hash, failure in failures.items()
                if (desire := self.config.queries[hash].desires.get(client_id)) is not None and desire.active
            ]
            if bodies:
                connection.send(Outgoing((values.dumps(["transformError", bodies]),)))

    # --- the view ---

    async def _catch_up(self, connections: Iterable[ClientConnection]) -> None:
        """Poke clients from their cookies to the group's version. Call with the pipelines' lock."""
        version = self.config.version
        pokes: dict[str | None, Outgoing] = {}
        for connection in connections:
            base = connection.cookie
            if base not in pokes:
                pokes[base] = compose(base, version, await self.view.content_since(base))
                self._services.status.pokes += 1
            connection.poke(pokes[base], version)

    def step(
        self,
        version: str,
        rows: list[bytes],
        confirmed: Confirmed | None,
        pokes: dict[tuple[View, str], Outgoing],
    ) -> None:
        """Move to a version of the data and poke the clients. Call with the pipelines' lock.

        `pokes` are those of this step so far, by queries and base cookie: taken from there if possible, else added.
        """
        base = self.config.version
        self.config.version = version
        if not self.clients:
            return
        shared_by = (self.view.queries, base)
        # A poke that confirms mutations is this group's own.
        poke = None if confirmed is not None else pokes.get(shared_by)
        if poke is None:
            content = PokeContent(rows=rows)
            if confirmed is not None:
                content.last_mutation_ids, content.mutations = confirmed.last_mutation_ids, confirmed.mutations
            poke = compose(base, version, content)
            if confirmed is None:
                pokes[shared_by] = poke
        for connection in self.clients.values():
            connection.poke(poke, version)
        self._services.status.pokes += len(self.clients)

    # --- expiry ---

    def _cancel_eviction(self) -> None:
        if self._eviction is not None:
            self._eviction.cancel()
            self._eviction = None

    def _schedule_eviction(self) -> None:
        self._cancel_eviction()
        expiry = self.config.next_expiry()
        if expiry is not None and self.clients:
            delay = max(0.0, expiry - self._clock.now()) / 1000 + EVICTION_SLACK
            self._eviction = asyncio.get_running_loop().call_later(delay, self._evict_soon)

    def _evict_soon(self) -> None:
        self._eviction = None
        self._services.background(self.evict_expired())

    async def evict_expired(self) -> None:
        """Drop the expired queries and poke the clients. Takes both locks."""
        async with self.lock, self._services.pipelines.lock:
            expired = self.config.expired(self._clock.now()) if self.view.active else []
            if expired and self._switch({}, expired):
                await self._catch_up(list(self.clients.values()))
        self._schedule_eviction()


def _named(query: QueryConfig) -> NamedQueryCall:
    return NamedQueryCall(query.hash, query.name or "", query.args)
