"""The application behind the scenario: named queries and mutators over its store, in the official shapes.

Every mutation is one transaction with the client's last mutation id; a refused one leaves its result for the cache to
find. Tokens outside `accepted` are refused with 401; those called `broken` and `nonsense` get what they say.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from tests.support.app_store import AppStore, Session

CLEANUP = "_zero_cleanupResults"


class Refused(Exception):
    """The application says no to a mutation."""


def _equals(column: str, value: object) -> dict[str, Any]:
    left, right = {"type": "column", "name": column}, {"type": "literal", "value": value}
    return {"type": "simple", "op": "=", "left": left, "right": right}


def open_by_owner(args: Mapping[str, Any]) -> dict[str, Any]:
    conditions = [_equals("open", True), _equals("owner_id", args["owner"])]
    return {"table": "issues", "where": {"type": "and", "conditions": conditions}, "orderBy": [["id", "asc"]]}


def unused_labels() -> dict[str, Any]:
    used = {
        "system": "client",
        "correlation": {"parentField": ["id"], "childField": ["label_id"]},
        "subquery": {
            "table": "issue_labels",
            "alias": "zsubq_used",
            "orderBy": [["issue_id", "asc"], ["label_id", "asc"]],
        },
    }
    where = {"type": "correlatedSubquery", "op": "NOT EXISTS", "related": used}
    return {"table": "labels", "where": where, "orderBy": [["id", "asc"]]}


QUERIES: Mapping[str, Callable[..., dict[str, Any]]] = {"openByOwner": open_by_owner, "unusedLabels": unused_labels}


class AppServer:
    """Runs in a thread of its own; `accepted` and `requests` may be looked at and changed from the test's."""

    def __init__(self, store: AppStore, *accepted: str) -> None:
        self.accepted = {f"Bearer {token}" for token in accepted}
        self.requests: list[tuple[str, Any]] = []
        self._store = store
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> AppServer:
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def settings(self) -> dict[str, str]:
        """What a cache must know of it."""
        return {"ZERO_QUERY_URL": f"{self.url}/query", "ZERO_MUTATE_URL": f"{self.url}/mutate"}

    async def _start(self) -> str:
        app = web.Application()
        app.router.add_post("/query", self._query)
        app.router.add_post("/mutate", self._mutate)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def _trouble(self, request: web.Request, *names: str) -> web.Response | None:
        """The answer to credentials that are refused, and to tokens and mutations that ask for trouble by name."""
        bearer = request.headers.get("Authorization", "Bearer ")
        asked = {bearer.removeprefix("Bearer "), *names}
        if "broken" in asked:
            return web.Response(status=500, text="out of order")
        if "nonsense" in asked:
            return web.Response(text="<html>")
        return None if bearer in self.accepted else web.json_response({"error": "unauthorized"}, status=401)

    async def _query(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(("query", body))
        if trouble := self._trouble(request):
            return trouble
        return web.json_response({"kind": "QueryResponse", "queries": [_answered(each) for each in body[1]]})

    async def _mutate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(("mutate", body))
        if trouble := self._trouble(request, *(each["name"] for each in body["mutations"])):
            return trouble
        schema = request.query["schema"]
        results = await asyncio.to_thread(self._process, schema, body)
        return web.json_response({"kind": "MutateResponse", "mutations": results})

    def _process(self, schema: str, body: Mapping[str, Any]) -> list[Any]:
        with self._store.session(schema) as session:
            return [_result(session, body["clientGroupID"], each) for each in body["mutations"]]


def _answered(query: Mapping[str, Any]) -> dict[str, Any]:
    known = {"id": query["id"], "name": query["name"]}
    if query["name"] not in QUERIES:
        return {**known, "error": "app", "message": f"Query not found: {query['name']}"}
    return {**known, "ast": QUERIES[query["name"]](*query["args"])}


def _result(session: Session, group: str, mutation: Mapping[str, Any]) -> dict[str, Any]:
    identity = {"id": mutation["id"], "clientID": mutation["clientID"]}
    if mutation["name"] == CLEANUP:
        _clean_up(session, mutation["args"][0])
        return {"id": identity, "result": {}}
    try:
        _transact(session, group, mutation, lambda: _run(session, mutation))
    except Refused as refused:
        result = {"error": "app", "message": str(refused), "details": {"id": mutation["args"][0]["id"]}}
        keep = 'INSERT INTO {mutations} ("clientGroupID", "clientID", "mutationID", result) VALUES (?, ?, ?, ?)'
        values = (group, mutation["clientID"], mutation["id"], json.dumps(result))
        _transact(session, group, mutation, lambda: session(keep, *values))
        return {"id": identity, "result": result}
    return {"id": identity, "result": {}}


def _transact(session: Session, group: str, mutation: Mapping[str, Any], work: Callable[[], object]) -> None:
    """The work in one transaction with the client's next mutation id; done before, it is not done again."""
    session.begin()
    try:
        upsert = (
            'INSERT INTO {clients} AS c ("clientGroupID", "clientID", "lastMutationID") VALUES (?, ?, 1) '
            'ON CONFLICT ("clientGroupID", "clientID") DO UPDATE SET "lastMutationID" = c."lastMutationID" + 1 '
            'RETURNING "lastMutationID"'
        )
        ((last,),) = session(upsert, group, mutation["clientID"])
        assert mutation["id"] <= last, "mutations come in order"
        if mutation["id"] == last:
            work()
        session("COMMIT" if mutation["id"] == last else "ROLLBACK")
    except BaseException:
        session("ROLLBACK")
        raise


def _run(session: Session, mutation: Mapping[str, Any]) -> None:
    assert mutation["name"] == "issue.setTitle"
    argument = mutation["args"][0]
    if argument["title"] == "forbidden":
        raise Refused("not allowed by the server")
    session("UPDATE issues SET title = ? WHERE id = ?", argument["title"], argument["id"])


def _clean_up(session: Session, argument: Mapping[str, Any]) -> None:
    delete = 'DELETE FROM {mutations} WHERE "clientGroupID" = ? AND "clientID" = ?'
    if argument["type"] == "bulk":
        for client in argument["clientIDs"]:
            session(delete, argument["clientGroupID"], client)
    else:
        seen = (argument["clientGroupID"], argument["clientID"], argument["upToMutationID"])
        session(f'{delete} AND "mutationID" <= ?', *seen)
