"""A client group at work: its clients, its view, and every way in which the two change.

The configuration changes first (`GroupEdit`, stored at once), then the view follows: queries are transformed, started
or dropped, and the `GroupView` moves to the new set in one step, stored before anybody is told. Data moves the view
through `step`. All clients of the group are at its version whenever nothing is under way; a client that comes back is
caught up from its own cookie first.

Calls hold the group's lock, and the pipelines' lock while they deal with rows; `step` is called with the latter only
and finds the group consistent, because between its awaits it always is.
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
from reference_cache.replica.schema import ReplicaSchema
from reference_cache.view_syncer.admission import Admission
from reference_cache.view_syncer.api import Credentials, NamedQuery, Outgoing, QueryFailure
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
from reference_cache.view_syncer.pokes import PokeContent, compose
from reference_cache.view_syncer.read_permissions import ReadPermissions
from reference_cache.view_syncer.services import Services
from reference_cache.view_syncer.ttl_clock import TtlClock

EVICTION_SLACK = 0.05
"""Seconds an expired query may outlive its time, so that several go together."""


class ClientGroup:
    """A group in use. Invariant: whoever is in `clients` has been told everything up to the group's version, except
    while a call is telling them."""

    def __init__(self, stored: StoredGroup, services: Services, *, is_new: bool) -> None:
        self.stored = stored
        self.config = stored.config
        self.is_new = is_new
        self.clients: dict[str, ClientConnection] = {}
        self.view = GroupView(stored, services)
        self.lock = asyncio.Lock()
        self.pending = 0
        self.stopped = False
        self.idle_since: float | None = None
        self._services = services
        self._restricted_by: ReadPermissions | None = None
        self._fits: ReplicaSchema | None = None
        self._clock = TtlClock(stored.ttl_clock, services.options.clock)
        self._eviction: asyncio.TimerHandle | None = None
        self._forgotten = ""  # clients with a cookie before this version cannot be caught up

    @property
    def ttl_clock(self) -> float:
        """The time queries expire by."""
        return self._clock.now()

    def is_abandoned(self, latest: float) -> bool:
        """Whether the last client left before this time and none is coming."""
        return not self.clients and not self.pending and self.idle_since is not None and self.idle_since <= latest

    # --- clients come and go ---

    async def connect(self, connection: ClientConnection, admission: Admission) -> None:
        """Admit a client whose request has been checked; on return it is up to date."""
        async with self.lock:
            # Checked before, but the group may have got an owner while this client waited for its turn.
            admission.check_owner(self.stored, self._services.options.takes_credentials)
            self._note_owner(connection)
            self._check_patch(admission.init.desired_queries_patch)
            self._check_room(admission.init.desired_queries_patch)
            self._services.options.limits.check_client(self.config, connection.client_id)
            if connection.cookie is not None and connection.cookie < self._forgotten:
                raise SyncError(ErrorKind.CLIENT_NOT_FOUND, "Client not found: too much has ended since it was here")
            before = self.config.version
            edit = GroupEdit(self.config)
            connection.deleted_clients = admission.edit(edit, self._clock.now())
            self._store(edit)
            self._tell_wishes(edit)
            if connection.cookie == before or (connection.cookie is None and before == EMPTY):
                connection.poke(self._wishes(edit, connection.cookie), self.config.version)
                self._admit(connection)
            await self._follow_wishes(connection, again=True)
            if connection.open and self.clients.get(connection.client_id) is not connection:
                async with self._services.pipelines.lock:
                    await self._bring_up([connection])
                    self._admit(connection)
            if admission.names_deleted:
                self._tell_deleted(connection.deleted_clients)

    def _note_owner(self, connection: ClientConnection) -> None:
        """Store what a connection proves, and part with clients that cannot prove as much."""
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
        """A client's socket is gone."""
        if self.clients.get(connection.client_id) is connection:
            del self.clients[connection.client_id]
            self.rest_if_alone()

    def rest_if_alone(self) -> None:
        """If nobody is connected, the clock stands still, and the time counts after which the queries stop."""
        if self.clients or self.idle_since is not None:
            return
        self._clock.stop()
        self.idle_since = self._services.options.clock()
        self._cancel_eviction()
        with self._services.file.transaction():
            self._services.groups.touch(self.config.group_id, self._clock.now(), time.time())

    def fail(self, error: SyncError) -> None:
        """Part from all clients."""
        connections, self.clients = list(self.clients.values()), {}
        for connection in connections:
            connection.fail(error)
        self.rest_if_alone()

    def stop(self) -> None:
        """Stop the queries and do nothing more; call with the pipelines' lock."""
        self.stopped = True
        self._cancel_eviction()
        self.view.stop(self)

    # --- what clients ask for ---

    async def change_desired_queries(self, connection: ClientConnection, patch: Sequence[QueryPatch]) -> None:
        """A client wants other queries from now on."""
        async with self.lock:
            self._check_patch(patch)
            self._check_room(patch)
            edit = GroupEdit(self.config)
            edit.apply(connection.client_id, patch, self._clock.now())
            self._store(edit)
            self._tell_wishes(edit)
            await self._follow_wishes(connection, again=False)
            self._forget_ended()

    async def delete_clients(self, connection: ClientConnection, client_ids: Sequence[str]) -> None:
        """Clients of the group are gone for good."""
        async with self.lock:
            if connection.client_id in client_ids:
                raise SyncError(ErrorKind.INTERNAL, "cannot delete self")
            edit = GroupEdit(self.config)
            edit.remove_clients(client_ids, self._clock.now())
            self._store(edit)
            self._tell_wishes(edit)
            self._tell_deleted(client_ids)
            await self._follow_wishes(connection, again=False)

    def _tell_deleted(self, client_ids: Sequence[str]) -> None:
        told = Outgoing((values.dumps(["deleteClients", {"clientIDs": list(client_ids)}]),))
        for connection in self.clients.values():
            connection.send(told)

    async def change_credentials(
        self,
        connection: ClientConnection,
        credentials: Credentials,
        auth_data: Mapping[str, Any] | None,
        secret: str | None,
    ) -> None:
        """A client of the group has new credentials: the application must accept them before they are used."""
        named = await self._services.transformer.validate(credentials)
        async with self.lock:
            if self.clients.get(connection.client_id) is not connection:
                return
            connection.credentials, connection.auth_data = credentials, auth_data
            connection.proof = Proof(named or auth_data is not None, secret)
            self._note_owner(connection)
            await self._follow_wishes(connection, again=True)

    async def transform_again(self, connection: ClientConnection) -> None:
        """Ask the application again what the group's named queries mean, for this client."""
        async with self.lock:
            await self._follow_wishes(connection, again=True)

    async def restrict_again(self) -> None:
        """The rules for ad hoc queries are others now."""
        async with self.lock:
            speaker = next(iter(self.clients.values()), None)
            if speaker is not None:
                await self._follow_wishes(speaker, again=False)

    async def inspect(self, connection: ClientConnection, question: Inspection) -> Any:
        """Answer an inspector's question."""
        query = await subject(question, self._services, connection)
        if query is not None:
            work = partial(analysis, query, question)
            return await self._services.pipelines.examine(query, self.view.choice, lambda: connection.is_there, work)
        async with self.lock, self._services.pipelines.lock:
            return answer(question, self, self._services)

    # --- limits ---

    def _check_room(self, patch: Sequence[QueryPatch]) -> None:
        """Raise `SyncError` if the group, or all groups together, have no room for the queries of a patch."""
        self._services.options.limits.check_patch(self.config, patch)
        if (self.is_new or patch) and not self._services.file.has_room:
            raise overloaded("The cache has no room for more client records")

    def _forget_ended(self) -> None:
        """Keep what has ended within its limit. Every client that is connected knows of it."""
        if not self.is_new and self._services.options.limits.must_forget(self.config):
            with self._services.file.transaction():
                self._forgotten = self._services.retention.forget_ended(self.stored)

    # --- wishes ---

    def _check_patch(self, patch: Sequence[QueryPatch]) -> None:
        if self._services.options.refuse_ad_hoc_queries and any(isinstance(op, PutQuery) and op.ast for op in patch):
            raise SyncError(ErrorKind.INVALID_MESSAGE, "Ad hoc queries are refused here; ask for a named query")

    def _store(self, edit: GroupEdit) -> None:
        """Store a change of the configuration; the first one stores the group."""
        if not edit.finish():
            return
        with self._services.file.transaction():
            if self.is_new:
                self._services.groups.create(self.stored, self._services.pipelines.version, time.time())
            self._services.groups.save(edit, self._clock.now())
        self.is_new = False

    def _tell_wishes(self, edit: GroupEdit) -> None:
        """Tell the clients that are up to date what the group's clients want now."""
        if edit.changed and self.clients:
            poke = self._wishes(edit, edit.before)
            for connection in self.clients.values():
                connection.poke(poke, self.config.version)

    def _wishes(self, edit: GroupEdit, base: str | None) -> Outgoing:
        self._services.status.pokes += 1
        return compose(base, self.config.version, PokeContent(desired=edit.desired))

    async def _follow_wishes(self, speaker: ClientConnection, *, again: bool) -> None:
        """Make the view what the configuration says: start what is missing, drop what has expired."""
        services = self._services
        self._check_schema()
        expired = self.config.expired(self._clock.now())
        if services.options.refuse_ad_hoc_queries:
            # Those of a group that was stored when they were not refused.
            expired += [query.hash for query in self.config.wanted() if query.ast and query.hash not in expired]
        queries, failures = await self._transformed(speaker, set(expired), again)
        started = await self._started(queries, speaker)
        async with services.pipelines.lock:
            self._check_started(started)
            self._tell_failures(failures, speaker)
            if self._switch(started, [*expired, *failures]) or self._is_behind():
                await self._bring_up(list(self.clients.values()))
        self._schedule_eviction()

    def _check_schema(self) -> None:
        """Refuse to go on if the tables are not what the clients were built for; once per state of the tables."""
        schema = self._services.pipelines.schema
        if schema is not self._fits:
            check_client_schema(self.stored.client_schema, schema)
            self._fits = schema

    def _switch(self, started: dict[str, LiveQuery], dropped: Sequence[str]) -> bool:
        return self.view.switch(self, started, dropped, self._clock.now())

    def _is_behind(self) -> bool:
        return any(connection.cookie != self.config.version for connection in self.clients.values())

    async def _transformed(
        self, speaker: ClientConnection, expired: set[str], again: bool
    ) -> tuple[dict[str, Query], dict[str, QueryFailure]]:
        """What the queries mean that are to be started, or all of them; and those the application refuses."""
        wanted = [query for query in self.config.wanted() if query.hash not in expired]
        fresh = [query for query in wanted if again or query.hash not in self.view.running]
        permissions = self._services.permissions()
        ad_hoc = fresh if permissions is self._restricted_by else wanted
        self._restricted_by = permissions
        queries: dict[str, Query] = {}
        async for query in self._services.pace.sliced(ad_hoc, every=16):
            if query.ast is not None:
                queries[query.hash] = permissions.apply(query.ast, speaker.auth_data)
        named = [_named(query) for query in fresh if query.ast is None]
        if not named:
            return queries, {}
        answers = await self._services.transformer.transform(speaker.credentials, named)
        failures = {hash: found for hash, found in answers.items() if isinstance(found, QueryFailure)}
        queries |= {hash: found for hash, found in answers.items() if isinstance(found, Query)}
        return queries, failures

    async def _started(self, queries: Mapping[str, Query], speaker: ClientConnection) -> dict[str, LiveQuery]:
        """The queries, running; each counted once more. Starting them ends when no client of the group is there."""
        pipelines = self._services.pipelines
        choice = self.view.choice
        started: dict[str, LiveQuery] = {}

        def wanted() -> bool:
            return not self.stopped and (speaker.is_there or any(each.is_there for each in self.clients.values()))

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
        """Raise `SyncError`, and release the queries, if the view cannot move to them; call with the pipelines' lock.

        Others had their turn while the queries were started: the tables may be others, and queries may have stopped.
        """
        pipelines = self._services.pipelines
        try:
            running = all(pipelines.live.get(live.key) is live for live in started.values())
            if self.stopped or not running or any(live.choice != self.view.choice for live in started.values()):
                raise SyncError(ErrorKind.REHOME, "The cache starts its queries anew")
            self._check_schema()
        except SyncError:
            pipelines.release(started.values())
            raise

    def _tell_failures(self, failures: Mapping[str, QueryFailure], speaker: ClientConnection) -> None:
        """Tell the clients that want them which queries the application refused."""
        for client_id, connection in {**self.clients, speaker.client_id: speaker}.items():
            bodies = [
                dict(failure.body)
                for hash, failure in failures.items()
                if (desire := self.config.queries[hash].desires.get(client_id)) is not None and desire.active
            ]
            if bodies:
                connection.send(Outgoing((values.dumps(["transformError", bodies]),)))

    # --- the view ---

    async def _bring_up(self, connections: Iterable[ClientConnection]) -> None:
        """Tell clients everything between their cookies and the group's version."""
        version = self.config.version
        pokes: dict[str | None, Outgoing] = {}
        for connection in connections:
            base = connection.cookie
            if base not in pokes:
                pokes[base] = compose(base, version, await self.view.content_since(base))
                self._services.status.pokes += 1
            connection.poke(pokes[base], version)

    def step(self, version: str, rows: list[bytes], confirmed: Confirmed | None, pokes: dict[Any, Outgoing]) -> None:
        """The data has moved, and this is what it means here. `pokes` has what other groups were told in this step."""
        base = self.config.version
        self.config.version = version
        if not self.clients:
            return
        place = (self.view.queries, base)
        poke = None if confirmed is not None else pokes.get(place)
        if poke is None:
            content = PokeContent(rows=rows)
            if confirmed is not None:
                content.last_mutation_ids, content.mutations = confirmed.last_mutation_ids, confirmed.mutations
            poke = compose(base, version, content)
            if confirmed is None:
                pokes[place] = poke
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
        """Drop the queries whose time is over."""
        async with self.lock, self._services.pipelines.lock:
            expired = self.config.expired(self._clock.now()) if self.view.active else []
            if expired and self._switch({}, expired):
                await self._bring_up(list(self.clients.values()))
        self._schedule_eviction()


def _named(query: QueryConfig) -> NamedQuery:
    return NamedQuery(query.hash, query.name or "", query.args)
