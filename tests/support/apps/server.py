"""The application behind the scenario: named queries and mutators over its store, served with our own toolkit.

Tokens outside `accepted` are refused with 401, and may be taken back while clients are connected; tokens and mutations
called `broken` and `nonsense` get what they say. Answers to pushes can get lost on their way. Every request is kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from protocol.sync.app_server import CLEANUP
from reference_cache.app_server import ApplicationError, Mutators, NamedQueries, Unauthenticated, zero_routes
from reference_cache.app_server.stores.ledger import LedgerStore
from reference_cache.app_server.stores.postgres import PostgresStore
from reference_cache.app_server.stores.sql_transaction import SqlTransaction
from reference_cache.app_server.stores.sqlite import SqliteStore
from reference_cache.zql.query.builder import Queries, QueryBuilder
from reference_cache.zql.query.expression import exists, not_
from tests.support.apps.schema import TRACKER
from tests.support.apps.store import AppStore
from tests.support.apps.thread import AppThread
from tests.support.apps.tracker import user_of_token

queries, mutators = NamedQueries(TRACKER), Mutators()
q = Queries(TRACKER)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ByOwner(BaseModel):
    owner: str


class SetTitle(BaseModel):
    id: str
    title: str


@queries.define("openByOwner")
def open_by_owner(args: ByOwner) -> QueryBuilder:
    return q.table("issues").where("open", True).where("owner", args.owner)


@queries.define("unusedLabels")
def unused_labels() -> QueryBuilder:
    return q.table("labels").where(not_(exists("used")))


@mutators.define("issue.setTitle")
async def set_title(tx: SqlTransaction, args: SetTitle) -> None:
    """Written before it may be refused, so that a refusal has something to take back."""
    await tx.update("issues", {"id": args.id, "title": args.title})
    if args.title == "forbidden":
        raise ApplicationError("not allowed by the server", {"id": args.id})
    if args.title == "crash":
        raise RuntimeError("the mutator broke down")


class AppServer(AppThread):
    """Runs in a thread of its own; `accepted` and `requests` may be looked at and changed from the test's."""

    def __init__(self, store: AppStore | LedgerStore[Any], *accepted: str, mutators: Mutators = mutators) -> None:
        super().__init__()
        self.accepted = {f"Bearer {token}" for token in accepted}
        self.requests: list[tuple[str, Any]] = []
        self.answers_to_lose = 0
        self._store = toolkit_store(store) if isinstance(store, AppStore) else store
        self._mutators = mutators

    def _application(self) -> web.Application:
        app = web.Application(middlewares=[self._notice])
        routes = zero_routes(
            queries, self._mutators, self._store, authenticate=self._authenticate, user_id=user_of_token
        )
        app.add_routes(routes)
        return app

    async def _close(self) -> None:
        if isinstance(self._store, PostgresStore):
            await self._store.close()
        else:
            self._store.close()

    def _authenticate(self, request: web.Request) -> str:
        if _bearer(request) not in self.accepted:
            raise Unauthenticated("unauthorized")
        return _bearer(request).removeprefix("Bearer ")

    @web.middleware
    async def _notice(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Keep the request, and play what tokens and mutations ask for by name."""
        body = await request.json()
        self.requests.append((request.path.strip("/"), body))
        names = {each["name"] for each in body["mutations"]} if request.path == "/mutate" else set()
        asked = {_bearer(request).removeprefix("Bearer "), *names}
        if "broken" in asked:
            return web.Response(status=500, text="out of order")
        if "nonsense" in asked:
            return web.Response(text="<html>")
        answer = await handler(request)
        if names - {CLEANUP} and self.answers_to_lose:
            self.answers_to_lose -= 1
            return web.Response(status=503, text="the answer was lost")
        return answer


def toolkit_store(store: AppStore) -> SqliteStore | PostgresStore:
    """The store as mutators write to it."""
    if store.adapter == "postgres":
        return PostgresStore(store.settings["dsn"], TRACKER)
    return SqliteStore(store.settings["path"], TRACKER)


def _bearer(request: web.Request) -> str:
    return request.headers.get("Authorization", "Bearer ")
