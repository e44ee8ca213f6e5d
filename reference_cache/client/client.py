"""The client's public API: live queries, optimistic mutations, and a connection that is kept up.

    async with Client("http://127.0.0.1:4848", tracker, mutators={"issue.close": close}, store="app.db") as client:
        issues = client.query(Queries(tracker).table("issue").where("open", True))
        await issues.complete()
        await client.mutate.issue.close({"id": "i1"})

Everything runs on the event loop that called `open`. Reading and mutating never wait for the network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reference_cache.client.connection import ConnectionManager, ConnectionState, FetchToken, StateName, TokenProvider
from reference_cache.client.errors import ClientError
from reference_cache.client.local.mutators import AnyMutators, by_name
from reference_cache.client.local.state import LocalState
from reference_cache.client.mutations import Mutation, MutatorNames
from reference_cache.client.queries import AnyQuery
from reference_cache.client.session import ClientSession
from reference_cache.client.socket import sync_address
from reference_cache.client.sqlite_store import SqliteLocalStore
from reference_cache.client.store import LocalStore, MemoryLocalStore, QueuedMutation
from reference_cache.client.views import LiveView
from reference_cache.zql.ivm.view import Result
from reference_cache.zql.schema import Schema


class Client:
    """One client of a cache, between `open` and `close` (or `async with`).

    `mutators` are functions by name, or those an application's server declares (`app_server.Mutators`).
    `store` is the path of a file, any `LocalStore`, or None to keep nothing. `auth` is a token or a coroutine function
    that fetches one; with a token, `user_id` must be the user it belongs to. With `offline` the client connects only
    after `connect()`.
    """

    def __init__(
        self,
        url: str,
        schema: Schema,
        *,
        mutators: AnyMutators | None = None,
        user_id: str | None = None,
        auth: str | FetchToken | None = None,
        store: LocalStore | str | Path | None = None,
        offline: bool = False,
    ) -> None:
        self._address = sync_address(url)
        self._schema = schema
        self._mutators = by_name(mutators)
        self._user_id = user_id
        self._token_provider = TokenProvider(auth)
        self._store = _store(store)
        self._offline = offline
        # Set by `open`, and kept after `close`.
        self._session: ClientSession | None = None
        # Set by `open`, and kept after `close`.
        self._connection: ConnectionManager | None = None

    async def open(self) -> Client:
        """Load the store and start connecting; raises `ClientError` if the store cannot be used."""
        state = LocalState(self._schema, self._mutators, self._store)
        self._session = ClientSession(state, self._user_id, lambda: self._token_provider.token)
        self._connection = ConnectionManager(self._address, self._session, self._token_provider)
        self._connection.start(offline=self._offline)
        return self

    async def close(self) -> None:
        """Disconnect and close the store; the next client of that store pushes what is queued."""
        if self._connection is not None:
            await self._connection.close()
            self._opened.state.close()

    async def __aenter__(self) -> Client:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- data ---

    def query(self, query: AnyQuery, *, ttl: float | None = None) -> LiveView:
        """Open a live view; after its close the server keeps the query for `ttl` milliseconds (its default if None)."""
        view = self._opened.view(query, ttl)
        view.while_connected = self._connected.or_disconnected
        return view

    async def run(self, query: AnyQuery) -> Result:
        """The complete result of a query, once; raises `Disconnected` or `QueryRefused`."""
        with self.query(query) as view:
            return await view.complete()

    @property
    def mutate(self) -> MutatorNames:
        """The mutators by name: `client.mutate.issue.close(args)`."""
        return MutatorNames(self._mutate, self._mutators)

    def _mutate(self, name: str, args: Any) -> Mutation:
        return self._opened.mutate(name, args)

    @property
    def queued(self) -> list[QueuedMutation]:
        """The unconfirmed mutations, oldest first."""
        return list(self._opened.state.record.queue)

    async def drained(self) -> None:
        """Return when the server has confirmed or refused every queued mutation.

        Raises `Disconnected` if the client stops connecting first; the mutations stay queued until `connect` is called.
        """
        await self._connected.or_disconnected(self._opened.drained())

    # --- connection ---

    @property
    def client_id(self) -> str:
        """The id the server knows this client by; a new one after the server has lost its record of the client."""
        return self._opened.state.record.identity.client_id

    @property
    def state(self) -> ConnectionState:
        """The connection's state; "closed" before `open`."""
        return ConnectionState("closed") if self._connection is None else self._connection.state

    async def wait_for(self, name: StateName) -> ConnectionState:
        """Return when the connection is in this state; raises `Disconnected` if it stops in another."""
        return await self._connected.wait_for(name)

    def connect(self, auth: str | None = None) -> None:
        """Connect now: after `disconnect`, after the cause of an error is repaired, or with another token."""
        self._connected.connect(auth)

    def disconnect(self) -> None:
        """Go offline; views and mutations keep working."""
        self._connected.disconnect()

    @property
    def _opened(self) -> ClientSession:
        if self._session is None:
            raise _not_open()
        return self._session

    @property
    def _connected(self) -> ConnectionManager:
        if self._connection is None:
            raise _not_open()
        return self._connection


def _not_open() -> ClientError:
    return ClientError("not-open", "the client is not open", fix="use `async with Client(…)`, or await open()")


def _store(store: LocalStore | str | Path | None) -> LocalStore:
    if store is None:
        return MemoryLocalStore()
    return SqliteLocalStore(store) if isinstance(store, str | Path) else store
