"""What a client says and hears on its connections: queries it wants, mutations it pushes, pokes it applies.

One session lives as long as its client and sees connections come and go. On each it says what the server does not know
yet: queries that are not among those the server has confirmed, and every mutation that is still queued, in order. A
connection on which mutations stay unconfirmed is given up for another, since a cache that lives may still have lost
them; what it has not lost is pushed twice and done once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from protocol.sync.downstream import Downstream, Fault, PokeEnd, PokePart, PokeStart, QueryFaults
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.client.errors import MutationLost, MutationRefused, MutationUnsettled, QueryRefused
from reference_cache.client.local.state import Applied, LocalState
from reference_cache.client.mutations import Mutation
from reference_cache.client.pokes import PokeAssembly
from reference_cache.client.queries import AnyQuery, WantedQueries, local_query
from reference_cache.client.reactions import Reaction, reaction_to, told_error
from reference_cache.client.schema_document import schema_document
from reference_cache.client.socket import Lost, Opening, Outbox
from reference_cache.client.store import QueuedMutation
from reference_cache.client.views import LiveView
from service_kit.logs import event, logger

log = logger("cache.client")

PATIENCE_SECONDS = 15.0
"""How long nothing that was pushed may be confirmed; twice as long each time that another connection did not help."""

MOST_DOUBLINGS = 5


class ClientSession:
    """Invariant: `_told` is what the server has been told to want, as far as this connection can know."""

    def __init__(self, state: LocalState, user_id: str | None, token: Callable[[], str | None]) -> None:
        self.state = state
        self.progressed = False
        self._user_id = user_id
        self._token = token
        self._wanted = WantedQueries(state.schema)
        self._views: dict[str, list[LiveView]] = {}
        self._mutations: dict[int, Mutation] = {}
        self._outbox: Outbox | None = None
        self._assembly = PokeAssembly()
        self._told: set[str] = set()
        self._unacknowledged: set[int] = set()
        self._is_told_soon = False
        self._pushed_at: float | None = None
        self._in_vain = 0
        self._drained = asyncio.Event()

    # --- what the program does ---

    def view(self, query: AnyQuery, ttl: float | None) -> LiveView:
        """A live view of a query, which the server is asked for."""
        local = local_query(query)
        view = self.state.tables.engine.materialize(local.ast, local.format)
        hash = self._wanted.want(query, ttl)
        live = LiveView(view, hash, self._release)
        self._views.setdefault(hash, []).append(live)
        if self.progressed and hash in self.state.record.got:
            live.set_status("complete")
        self._tell_soon()
        return live

    def _release(self, live: LiveView) -> None:
        self.state.tables.engine.release(live.view)
        self._views[live.hash].remove(live)
        if not self._views[live.hash]:
            del self._views[live.hash]
        self._wanted.let_go(live.hash)
        self._tell_soon()

    def mutate(self, name: str, args: Any) -> Mutation:
        """Apply a mutation here, queue it, and push it if there is a connection."""
        queued, returned = self.state.mutate(name, args, int(time.time() * 1000))
        mutation = self._mutations[queued.id] = Mutation(queued, returned)
        if self._outbox is not None:
            self._push(self._outbox, queued)
        return mutation

    async def drained(self) -> None:
        """Until no mutation is queued."""
        while self.state.record.queue:
            await self._drained.wait()

    def update_auth(self, token: str) -> None:
        """Tell a cache that is connected of new credentials."""
        if self._outbox is not None:
            self._outbox.put("updateAuth", {"auth": token})

    # --- what a connection does ---

    def opening(self) -> Opening:
        record = self.state.record
        identity = record.identity
        self.progressed = False
        patch = self._wanted.difference(record.desired)
        self._told = self._wanted.hashes
        init: dict[str, Any] = {"desiredQueriesPatch": patch, "activeClients": [identity.client_id]}
        if record.cookie is None:
            init["clientSchema"] = schema_document(self.state.schema)
        parameters = {
            "clientID": identity.client_id,
            "clientGroupID": identity.group_id,
            "profileID": identity.profile_id,
            "baseCookie": record.cookie or "",
            "lmid": str(record.last_mutation_id),
        }
        if self._user_id is not None:
            parameters["userID"] = self._user_id
        return Opening(parameters, init, self._token())

    def opened(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._assembly = PokeAssembly()
        self._tell()
        self._acknowledge()
        for mutation in self.state.record.queue:
            self._push(outbox, mutation)

    def closed(self) -> None:
        self._outbox = None
        self._pushed_at = None

    def check_patience(self) -> None:
        patience = PATIENCE_SECONDS * 2 ** min(self._in_vain, MOST_DOUBLINGS)
        if self._pushed_at is not None and time.monotonic() - self._pushed_at > patience:
            self._in_vain += 1
            event(log, logging.WARNING, "pushed-in-vain", time=self._in_vain, seconds=patience)
            raise Lost(f"nothing that was pushed was confirmed for {patience:g} seconds")

    def take(self, message: Downstream) -> None:
        match message:
            case PokeStart() | PokePart() | PokeEnd():
                poke = self._assembly.take(message)
                if poke is not None:
                    applied = self.state.apply(poke)
                    self.progressed = True
                    self._settle(applied)
                    self._note_got()
            case QueryFaults():
                for fault in message.queries:
                    refused = QueryRefused(fault.name, fault.message or fault.error, fault.details)
                    for view in self._views.get(fault.id, ()):
                        view.set_status("error", refused)
            case Fault():
                error = told_error(message)
                if reaction_to(error) is not Reaction.GO_ON:
                    self._unsettle(error)
                    raise error
            case _:
                pass

    def forget(self) -> None:
        """The server does not know this client's cookie; one that knows nothing of a client without any is new."""
        for views in self._views.values():
            for view in views:
                view.set_status("unknown")
        self.progressed = False
        if self.state.record.cookie is not None:
            self.state.forget_server()
            return
        for mutation in self.state.begin_anew():
            self._outcome(mutation, MutationLost(mutation.name))
        self._note_drained()

    # --- queries ---

    def _tell_soon(self) -> None:
        """Changes of one turn of the event loop travel together."""
        if self._outbox is not None and not self._is_told_soon:
            self._is_told_soon = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_told_soon = False
        patch = self._wanted.difference(self._told)
        if patch and self._outbox is not None:
            self._told = self._wanted.hashes
            self._outbox.put("changeDesiredQueries", {"desiredQueriesPatch": patch})

    def _note_got(self) -> None:
        for hash in self.state.record.got & self._views.keys():
            for view in self._views[hash]:
                if view.status != "complete":
                    view.set_status("complete")

    # --- mutations ---

    def _push(self, outbox: Outbox, queued: QueuedMutation) -> None:
        identity = self.state.record.identity
        mutation = {
            "type": "custom",
            "id": queued.id,
            "clientID": identity.client_id,
            "name": queued.name,
            "args": [queued.args],
            "timestamp": queued.timestamp,
        }
        body = {
            "clientGroupID": identity.group_id,
            "mutations": [mutation],
            "pushVersion": 1,
            "timestamp": int(time.time() * 1000),
            "requestID": f"{identity.client_id}-{queued.id}-{time.monotonic_ns():x}",
        }
        outbox.put("push", body)
        if self._pushed_at is None:
            self._pushed_at = time.monotonic()

    def _settle(self, applied: Applied) -> None:
        if applied.confirmed:
            self._in_vain = 0
            self._pushed_at = time.monotonic() if self.state.record.queue else None
        for mutation in applied.confirmed:
            result = applied.results.get(mutation.id, {})
            refused = result.get("error") not in (None, "alreadyProcessed")
            self._outcome(mutation, MutationRefused(mutation.name, result) if refused else result.get("data"))
        self._unacknowledged = (self._unacknowledged | applied.results.keys()) - applied.forgotten
        if applied.results:
            self._acknowledge()
        self._note_drained()

    def _outcome(self, mutation: QueuedMutation, outcome: Any) -> None:
        held = self._mutations.pop(mutation.id, None)
        if held is not None:
            held.settle(outcome)

    def _unsettle(self, error: SyncError) -> None:
        """Who waits for a mutation that could not be pushed is told; the mutation stays queued."""
        if error.refuses_credentials or error.kind not in (ErrorKind.PUSH_FAILED, ErrorKind.INVALID_PUSH):
            return
        named = error.details.get("mutationIDs")
        for id, mutation in self._mutations.items():
            if named is None or any(each.get("id") == id for each in named):
                mutation.settle(MutationUnsettled(mutation.name, error))

    def _acknowledge(self) -> None:
        """Results that were seen need not be kept; said on every connection until the server has forgotten them."""
        if self._unacknowledged and self._outbox is not None:
            client_id = self.state.record.identity.client_id
            self._outbox.put("ackMutationResponses", {"clientID": client_id, "id": max(self._unacknowledged)})

    def _note_drained(self) -> None:
        if not self.state.record.queue:
            drained, self._drained = self._drained, asyncio.Event()
            drained.set()
