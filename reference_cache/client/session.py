"""The client's side of the sync protocol: desired queries and mutations up, pokes and errors down.

One session lives as long as its client and uses one connection after another. On each new connection it sends what the
server does not know yet: the difference between the desired queries and those the server has confirmed, and every
queued mutation, in order. If pushed mutations stay unconfirmed for too long, the session asks for another connection,
because a cache that answers pings may still have lost them. A mutation that is pushed twice is executed once: the
server compares its id with the last mutation id.

Everything here runs on the client's event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from protocol.sync.downstream import Downstream, ErrorBody, PokeEnd, PokePart, PokeStart, QueryFaults
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.client.errors import MutationLost, MutationRefused, MutationUnsettled, QueryRefused
from reference_cache.client.local.state import Applied, LocalState
from reference_cache.client.mutations import Mutation
from reference_cache.client.pokes import PokeAssembly
from reference_cache.client.queries import AnyQuery, DesiredQueries, local_query
from reference_cache.client.reactions import Reaction, reaction_to, received_error
from reference_cache.client.schema_document import schema_document
from reference_cache.client.socket import Lost, Opening, SendQueue
from reference_cache.client.store import QueuedMutation
from reference_cache.client.views import LiveView
from service_kit.logs import event, logger

log = logger("cache.client")

CONFIRM_TIMEOUT_SECONDS = 15.0
"""How long pushed mutations may stay unconfirmed; doubled each time that a new connection did not help."""

MAX_DOUBLINGS = 5
"""Limits the timeout to 15 s × 2⁵ = 8 minutes."""


class ClientSession:
    """What one client sends and receives, over all its connections.

    Invariant: `_sent_queries` are the desired queries that this connection has sent or that the server had before it.
    """

    def __init__(self, state: LocalState, user_id: str | None, token: Callable[[], str | None]) -> None:
        self.state = state
        # Whether this connection has applied a poke: False when a connection begins or the server's data were dropped.
        # The connection manager reads it to distinguish a connection that worked from one that never did.
        self.progressed = False
        self._user_id = user_id
        self._token = token
        self._desired = DesiredQueries(state.schema)
        # The open views by query hash, in the order they were made.
        self._views: dict[str, list[LiveView]] = {}
        # The mutations of this process whose `server` future is open, by mutation id. Mutations queued by an earlier
        # process are in `state.record.queue` only: nothing awaits them.
        self._mutations: dict[int, Mutation] = {}
        # Set between `opened` and `closed`; None while there is no connection.
        self._send_queue: SendQueue | None = None
        # A new one for each connection: a poke that was interrupted is void.
        self._assembly = PokeAssembly()
        # Hashes of the desired queries as the server knows them; written when a patch is sent.
        self._sent_queries: set[str] = set()
        # Ids of results that the server has sent and still keeps. An id is removed when the server says that it has
        # deleted the result, so that a lost acknowledgement is sent again on the next connection.
        self._unacknowledged: set[int] = set()
        # Whether `_send_desired_queries` is scheduled for the next turn of the event loop.
        self._is_send_scheduled = False
        # Since when (`time.monotonic()`) pushed mutations wait for a confirmation; None if none waits.
        self._pushed_at: float | None = None
        # Consecutive connections given up because nothing was confirmed; 0 after a confirmation.
        self._failed_attempts = 0
        # Set and replaced by a new one whenever the queue is empty after a poke.
        self._drained = asyncio.Event()

    # --- called by the program, through `Client` ---

    def view(self, query: AnyQuery, ttl: float | None) -> LiveView:
        """Open a live view and add its query to the desired queries; `ttl` in milliseconds."""
        local = local_query(query)
        view = self.state.tables.engine.materialize(local.ast, local.format)
        hash = self._desired.add(query, ttl)
        live = LiveView(view, hash, self._release)
        self._views.setdefault(hash, []).append(live)
        if self.progressed and hash in self.state.record.got:
            live.set_status("complete")
        self._schedule_send()
        return live

    def _release(self, live: LiveView) -> None:
        self.state.tables.engine.release(live.view)
        self._views[live.hash].remove(live)
        if not self._views[live.hash]:
            del self._views[live.hash]
        self._desired.remove(live.hash)
        self._schedule_send()

    def mutate(self, name: str, args: Any) -> Mutation:
        """Run a mutator on the local rows, queue the mutation durably, and push it if connected.

        Raises what the mutator raises; then nothing is queued.
        """
        queued, returned = self.state.mutate(name, args, int(time.time() * 1000))
        mutation = self._mutations[queued.id] = Mutation(queued, returned)
        if self._send_queue is not None:
            self._push(self._send_queue, queued)
        return mutation

    async def drained(self) -> None:
        """Return when no mutation is queued."""
        while self.state.record.queue:
            await self._drained.wait()

    def update_auth(self, token: str) -> None:
        """Send a new token on the current connection, if there is one."""
        if self._send_queue is not None:
            self._send_queue.put("updateAuth", {"auth": token})

    # --- called by a connection: `socket.MessageHandler` ---

    def opening(self) -> Opening:
        """Handshake parameters, init message and token of the next connection."""
        record = self.state.record
        identity = record.identity
        self.progressed = False
        patch = self._desired.difference(record.desired)
        self._sent_queries = self._desired.hashes
        init: dict[str, Any] = {"desiredQueriesPatch": patch, "activeClients": [identity.client_id]}
        # As the official client does: the schema travels only when the group has no cookie, so the server knows none.
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

    def opened(self, send_queue: SendQueue) -> None:
        """The server has sent `connected`: send desired queries that changed meanwhile, and all queued mutations."""
        self._send_queue = send_queue
        self._assembly = PokeAssembly()
        self._send_desired_queries()
        self._acknowledge()
        for mutation in self.state.record.queue:
            self._push(send_queue, mutation)

    def closed(self) -> None:
        self._send_queue = None
        self._pushed_at = None

    def check_confirmations(self) -> None:
        """Raise `Lost` if pushed mutations have been unconfirmed for too long on this connection."""
        timeout = CONFIRM_TIMEOUT_SECONDS * 2 ** min(self._failed_attempts, MAX_DOUBLINGS)
        if self._pushed_at is not None and time.monotonic() - self._pushed_at > timeout:
            self._failed_attempts += 1
            event(
                log,
                logging.WARNING,
                "pushed mutations are not confirmed, connecting again",
                attempt=self._failed_attempts,
                seconds=timeout,
            )
            raise Lost(f"nothing that was pushed was confirmed for {timeout:g} seconds")

    def take(self, message: Downstream) -> None:
        """Handle one message. Raises `PokeError`, or a `SyncError` that ends the connection."""
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
            case ErrorBody():
                error = received_error(message)
                if reaction_to(error) is not Reaction.KEEP_CONNECTION:
                    self._fail_unpushed(error)
                    raise error
            case _:
                pass

    def forget(self) -> None:
        """Drop the server's data; if there is no cookie, the server does not know the client id: take a new one."""
        for views in self._views.values():
            for view in views:
                view.set_status("unknown")
        self.progressed = False
        if self.state.record.cookie is not None:
            self.state.forget_server()
            return
        for mutation in self.state.become_new_client():
            self._outcome(mutation, MutationLost(mutation.name))
        self._note_drained()

    # --- queries ---

    def _schedule_send(self) -> None:
        """Send the desired queries on the next turn of the event loop, so that changes of one turn share a message."""
        if self._send_queue is not None and not self._is_send_scheduled:
            self._is_send_scheduled = True
            asyncio.get_running_loop().call_soon(self._send_desired_queries)

    def _send_desired_queries(self) -> None:
        self._is_send_scheduled = False
        patch = self._desired.difference(self._sent_queries)
        if patch and self._send_queue is not None:
            self._sent_queries = self._desired.hashes
            self._send_queue.put("changeDesiredQueries", {"desiredQueriesPatch": patch})

    def _note_got(self) -> None:
        for hash in self.state.record.got & self._views.keys():
            for view in self._views[hash]:
                if view.status != "complete":
                    view.set_status("complete")

    # --- mutations ---

    def _push(self, send_queue: SendQueue, queued: QueuedMutation) -> None:
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
        send_queue.put("push", body)
        if self._pushed_at is None:
            self._pushed_at = time.monotonic()

    def _settle(self, applied: Applied) -> None:
        if applied.confirmed:
            self._failed_attempts = 0
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

    def _fail_unpushed(self, error: SyncError) -> None:
        """Fail the futures of mutations that could not be pushed; the mutations stay queued.

        Refused credentials fail nothing: the mutations are pushed again with new ones.
        """
        if error.refuses_credentials or error.kind not in (ErrorKind.PUSH_FAILED, ErrorKind.INVALID_PUSH):
            return
        mutation_ids = error.details.get("mutationIDs")
        for id, mutation in self._mutations.items():
            if mutation_ids is None or any(each.get("id") == id for each in mutation_ids):
                mutation.settle(MutationUnsettled(mutation.name, error))

    def _acknowledge(self) -> None:
        """Let the server delete the results that were received; repeated on each connection until it has."""
        if self._unacknowledged and self._send_queue is not None:
            client_id = self.state.record.identity.client_id
            self._send_queue.put("ackMutationResponses", {"clientID": client_id, "id": max(self._unacknowledged)})

    def _note_drained(self) -> None:
        if not self.state.record.queue:
            drained, self._drained = self._drained, asyncio.Event()
            drained.set()
