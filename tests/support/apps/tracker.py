"""A small issue tracker: one schema, its named queries and mutators, used by the application's server and by clients.

The mutators run on both sides. The server alone knows who asks (`ctx`), and so it alone refuses: titles called
`forbidden`, and with `broken` it fails as a whole. And it can be unwell: late, failing, or gone in mid-sentence.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from reference_cache.app_server import ApplicationError, Mutators, NamedQueries, Unauthenticated, zero_routes
from reference_cache.app_server.stores.sqlite import SqliteStore
from reference_cache.zql.query.builder import Queries, QueryBuilder
from reference_cache.zql.schema import Schema
from tests.support.apps.thread import AppThread

TRACKER = Schema.from_json(
    {
        "tables": {
            "issue": {
                "serverName": "issues",
                "columns": {
                    "id": {"type": "string"},
                    "title": {"type": "string"},
                    "open": {"type": "boolean"},
                    "owner": {"type": "string", "optional": True, "serverName": "owner_id"},
                },
                "primaryKey": ["id"],
            },
            "comment": {
                "serverName": "comments",
                "columns": {
                    "id": {"type": "string"},
                    "issueId": {"type": "string", "serverName": "issue_id"},
                    "body": {"type": "string"},
                },
                "primaryKey": ["id"],
            },
        },
        "relationships": {
            "issue": {"comments": [{"sourceField": ["id"], "destField": ["issueId"], "destSchema": "comment"}]},
            "comment": {
                "issue": [
                    {"sourceField": ["issueId"], "destField": ["id"], "destSchema": "issue", "cardinality": "one"}
                ]
            },
        },
    }
)
TABLES = (
    "CREATE TABLE issues (id TEXT PRIMARY KEY NOT NULL, title TEXT, open BOOLEAN, owner_id TEXT)",
    "CREATE TABLE comments (id TEXT PRIMARY KEY NOT NULL, issue_id TEXT, body TEXT)",
    *(f"INSERT INTO issues VALUES ('i{n}', 'issue {n}', {n % 2}, 'u{n % 3}')" for n in range(1, 7)),
    *(f"INSERT INTO comments VALUES ('c{n}', 'i{n}', 'comment {n}')" for n in range(1, 4)),
)
MOODS = (*["well"] * 10, "late", "later", "failing", "failing after all", "silent", "silent after all")
LATE = {"late": 0.5, "later": 3.0}
"""Seconds; a client that was cut has long come back by then."""

q = Queries(TRACKER)
queries = NamedQueries(TRACKER)
mutators = Mutators()


class ByOwner(BaseModel):
    owner: str


class Issue(BaseModel):
    id: str
    title: str
    open: bool = True
    owner: str | None = None


class SetTitle(BaseModel):
    id: str
    title: str


class OneIssue(BaseModel):
    id: str


class Comment(BaseModel):
    id: str
    issueId: str  # noqa: N815
    body: str


@queries.define("byOwner")
def by_owner(args: ByOwner) -> QueryBuilder:
    return q.table("issue").where("owner", args.owner).related("comments")


@mutators.define("issue.create")
async def create_issue(tx: Any, args: Issue) -> None:
    await tx.insert("issue", args.model_dump())


@mutators.define("issue.setTitle")
async def set_title(tx: Any, args: SetTitle, ctx: str | None = None) -> None:
    if ctx is not None and args.title == "forbidden":
        raise ApplicationError("not allowed by the server", details={"id": args.id})
    if ctx is not None and args.title == "broken":
        raise RuntimeError("the mutator has a mistake")
    await tx.update("issue", args.model_dump())


@mutators.define("issue.delete")
async def delete_issue(tx: Any, args: OneIssue) -> None:
    await tx.delete("issue", {"id": args.id})


@mutators.define("comment.add")
async def add_comment(tx: Any, args: Comment) -> None:
    await tx.upsert("comment", args.model_dump())


def user_of_token(token: str) -> str | None:
    """Tokens begin with the name of their user; without one, nobody is logged in."""
    return token.partition("-")[0] or None


class TrackerApp(AppThread):
    """The application's server over a SQLite file, in a thread of its own. Tokens outside `accepted` get a 401."""

    def __init__(self, path: Path, *accepted: str) -> None:
        super().__init__()
        self.accepted = set(accepted)
        self.is_down = False
        self.unwell: random.Random | None = None
        self.pushes = 0
        self._path = path

    def _application(self) -> web.Application:
        self._store = SqliteStore(self._path, TRACKER)
        app = web.Application(middlewares=[self._watch])
        app.add_routes(zero_routes(queries, mutators, self._store, authenticate=self._user, user_id=user_of_token))
        return app

    async def _close(self) -> None:
        self._store.close()

    @web.middleware
    async def _watch(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.pushes += request.path == "/mutate"
        if self.is_down and request.path == "/mutate":
            return web.Response(status=500, text="out of order")
        mood = "well" if self.unwell is None else self.unwell.choice(MOODS)
        await asyncio.sleep(LATE.get(mood, 0))
        answer: web.StreamResponse | None = None
        if mood not in ("failing", "silent"):
            answer = await handler(request)
        if mood.startswith("silent") and request.transport is not None:
            request.transport.abort()
        return answer if answer is not None and mood in ("well", *LATE) else web.Response(status=503)

    def _user(self, request: web.Request) -> str:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.accepted:
            raise Unauthenticated("unknown token")
        return token
