"""Scripted clients: they apply pokes by the rules of the official one and complain about whatever it would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from protocol.sync.ast import Query
from protocol.sync.ast_json import parse, to_json
from protocol.sync.errors import SyncError
from protocol.sync.messages import ClientSchema, InitConnection
from reference_cache.view_syncer.api import ClientInfo, NamedQueryCall, Outgoing, QueryFailure, SyncerConnection
from reference_cache.view_syncer.syncer import ViewSyncer
from tests.reference_cache.view_syncer.world import APP_TABLES, Rows, row_key

SCHEMA = ClientSchema.model_validate(
    {
        "tables": {
            name: {"columns": {column: {"type": kind} for column, kind in columns.items()}, "primaryKey": list(key)}
            for name, (columns, key) in APP_TABLES.items()
        }
    }
)


class App:
    """The application's query endpoint: named queries by name, refused ones by their failure."""

    def __init__(self, queries: Mapping[str, Any]) -> None:
        self.queries = dict(queries)
        self.refused: dict[str, str] = {}
        self.calls: list[list[str]] = []
        self.failure: SyncError | None = None
        self.turns = 0
        """How often others get their turn before an answer comes."""

    async def validate(self, credentials: Any) -> bool:
        return False

    async def transform(self, credentials: Any, queries: Sequence[NamedQueryCall]) -> dict[str, Query | QueryFailure]:
        self.calls.append([query.name for query in queries])
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        known = {*self.queries, *self.refused}
        return {query.hash: self._one(query) for query in queries if query.name in known}

    def _one(self, query: NamedQueryCall) -> Query | QueryFailure:
        if query.name in self.refused:
            body = {"error": "app", "id": query.hash, "name": query.name, "message": self.refused[query.name]}
            return QueryFailure(body)
        return parse(self.queries[query.name])


class Client:
    """One client across its connections. Invariant: `cookie`, `rows`, `got` are those of the last poke that ended."""

    def __init__(self, client_id: str, group_id: str, *, user_id: str | None = None) -> None:
        self.client_id = client_id
        self.group_id = group_id
        self.user_id = user_id
        self.keys = dict(KEYS)
        self.cookie: str | None = None
        self.rows: Rows = {}
        self.got: set[str] = set()
        self.desired: dict[str, set[str]] = {}
        self.last_mutation_ids: dict[str, int] = {}
        self.results: dict[tuple[str, int], Any] = {}
        self.errors: list[SyncError] = []
        self.messages: list[list[Any]] = []
        self.pokes: list[dict[str, Any]] = []
        self.connection: SyncerConnection | None = None
        self.is_open = True
        self._told = asyncio.Event()
        self._poke: dict[str, Any] | None = None

    async def connect(self, syncer: ViewSyncer, patch: Sequence[Mapping[str, Any]] = (), **init: Any) -> None:
        """Connect with the cookie it has; the schema goes along while it has none."""
        body = {"desiredQueriesPatch": list(patch), **init}
        message = InitConnection.model_validate(body)
        if self.cookie is None and "clientSchema" not in init:
            message = message.model_copy(update={"client_schema": SCHEMA})
        info = ClientInfo(self.client_id, self.group_id, self.user_id, self.cookie)
        before = len(self.pokes)
        self._poke = None
        self.connection = await syncer.connect(info, message, self)
        assert len(self.pokes) > before, "the first poke after connecting is missing"

    async def change(self, *patch: Mapping[str, Any]) -> None:
        assert self.connection is not None
        message = InitConnection.model_validate({"desiredQueriesPatch": list(patch)})
        await self.connection.change_desired_queries(message.desired_queries_patch)

    async def close(self) -> None:
        if self.connection is not None:
            await self.connection.close()
            self.connection = None

    def send(self, outgoing: Outgoing) -> None:
        for frame in outgoing.frames:
            tag, body = json.loads(frame)
            self.messages.append([tag, body])
            getattr(self, f"_on_{tag}")(body)
        self._told.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the messages to the client make the condition true."""
        async with asyncio.timeout(10):
            while not condition():
                self._told.clear()
                await self._told.wait()

    def fail(self, error: SyncError) -> None:
        self.errors.append(error)
        self.connection = None

    def _on_pokeStart(self, body: dict[str, Any]) -> None:  # noqa: N802
        assert self._poke is None, "pokes interleave"
        assert body["baseCookie"] == self.cookie, f"poke from {body['baseCookie']}, client at {self.cookie}"
        self._poke = {"id": body["pokeID"], "parts": []}

    def _on_pokePart(self, body: dict[str, Any]) -> None:  # noqa: N802
        assert self._poke is not None
        assert body["pokeID"] == self._poke["id"]
        assert len(body.get("rowsPatch", ())) <= 100
        self._poke["parts"].append(body)

    def _on_pokeEnd(self, body: dict[str, Any]) -> None:  # noqa: N802
        poke, self._poke = self._poke, None
        assert poke is not None
        assert body["pokeID"] == poke["id"]
        before, self.cookie = self.cookie, body["cookie"]
        assert before is None or self.cookie >= before, "the cookie goes back"
        assert self.cookie != before or not poke["parts"], "a poke that does not move the cookie is dropped"
        for part in poke["parts"]:
            self._apply(part)
        self.pokes.append({"base": before, "cookie": self.cookie, "parts": poke["parts"]})

    def _apply(self, part: dict[str, Any]) -> None:
        for client_id, number in part.get("lastMutationIDChanges", {}).items():
            assert number >= self.last_mutation_ids.get(client_id, 0), "a mutation id goes back"
            self.last_mutation_ids[client_id] = number
        for client_id, patch in part.get("desiredQueriesPatches", {}).items():
            _patch_set(self.desired.setdefault(client_id, set()), patch)
        _patch_set(self.got, part.get("gotQueriesPatch", ()))
        for op in part.get("rowsPatch", ()):
            self._apply_row(op)
        for op in part.get("mutationsPatch", ()):
            self._apply_result(op)

    def _apply_row(self, op: dict[str, Any]) -> None:
        table = op["tableName"]
        key = row_key(table, op["value"] if op["op"] == "put" else op["id"], self.keys)
        if op["op"] == "put":
            self.rows[table, key] = op["value"]
        else:
            self.rows.pop((table, key), None)

    def _apply_result(self, op: dict[str, Any]) -> None:
        mutation = op["mutation"]["id"] if op["op"] == "put" else op["id"]
        place = mutation["clientID"], mutation["id"]
        if op["op"] == "put":
            assert self.results.get(place, op["mutation"]["result"]) == op["mutation"]["result"], "a result changes"
            self.results[place] = op["mutation"]["result"]
        else:
            self.results.pop(place, None)

    def _on_transformError(self, body: list[Any]) -> None:  # noqa: N802
        assert body

    def _on_deleteClients(self, body: dict[str, Any]) -> None:  # noqa: N802
        assert body

    def row_patches(self, since: int = 0) -> list[dict[str, Any]]:
        """The row patches of all pokes from the n-th on."""
        parts = [part for poke in self.pokes[since:] for part in poke["parts"]]
        return [op for part in parts for op in part.get("rowsPatch", ())]


KEYS = {name: key for name, (_, key) in APP_TABLES.items()}


def _patch_set(found: set[str], patch: Sequence[Mapping[str, Any]]) -> None:
    for op in patch:
        (found.add if op["op"] == "put" else found.discard)(op["hash"])


def named(hash: str, name: str | None = None, ttl: int | None = None) -> dict[str, Any]:
    """Put a named query; by default hash and name are the same."""
    put: dict[str, Any] = {"op": "put", "hash": hash, "name": name or hash, "args": []}
    return put if ttl is None else {**put, "ttl": ttl}


def ad_hoc(hash: str, ast: Any) -> dict[str, Any]:
    return {"op": "put", "hash": hash, "ast": to_json(parse(ast))}


def dropped(hash: str) -> dict[str, Any]:
    return {"op": "del", "hash": hash}
