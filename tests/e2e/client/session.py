"""One session of the Python client, the same for every cache: what it must show at each step is asserted as it happens.

A step's entry in the transcript is what the client showed and was told, without anything that differs by chance.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reference_cache.client import (
    Client,
    Disconnected,
    MutationRefused,
    MutationUnsettled,
    NamedQuery,
    QueryRefused,
    Transaction,
    named_query,
)
from reference_cache.zql.query.builder import QueryBuilder
from reference_cache.zql.query.expression import cmp, or_
from tests.support.apps.store import AppStore
from tests.support.apps.tracker import TRACKER, ByOwner, TrackerApp, by_owner, mutators, q
from tests.support.error_ids import without_error_ids
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.peers.zero_cache import ZeroCache

SECONDS = 60.0
"""For anything to happen that a busy machine may delay."""

ISSUES = q.table("issue")
VIEWS: dict[str, QueryBuilder | NamedQuery] = {
    "deep": ISSUES.related("comments"),
    "discussed": ISSUES.where_exists("comments"),
    "either": ISSUES.where(or_(cmp("open", False), cmp("owner", "u1"))),
    "last": ISSUES.order_by("title", "desc").limit(2),
    "one": ISSUES.where("id", "i3").one(),
    "comments": q.table("comment").related("issue"),
    "mine": named_query("byOwner", lambda args: by_owner(ByOwner(**args)))({"owner": "u1"}),
}
nobody_knows = named_query("nobodyKnows", lambda: ISSUES)


def set_title(tx: Transaction, args: dict[str, Any]) -> None:
    tx.update("issue", {"id": args["id"], "title": args["title"]})


def anything(tx: Transaction, args: Any) -> None:
    """A mutator that checks nothing here, so that the server must."""


class Session:
    """One cache, its application, and the client on its way through `STEPS`."""

    def __init__(self, cache: ReferenceCache | ZeroCache, app: TrackerApp, store: AppStore, folder: Path) -> None:
        self.cache, self.app, self.store, self.folder = cache, app, store, folder

    def client(self, name: str, **options: Any) -> Client:
        given = {"mutators": mutators, "user_id": "ann", "auth": "ann-token", "store": self.folder / f"{name}.db"}
        return Client(self.cache.url, TRACKER, **{**given, **options})

    async def run(self) -> dict[str, Any]:
        """The transcript of all steps, in order."""
        async with self.client("ann") as self.ann:
            self.views = {name: self.ann.query(query) for name, query in VIEWS.items()}
            transcript = {}
            for step in STEPS:
                print(f"step {step}, {self.ann.state}")
                async with asyncio.timeout(2 * SECONDS):
                    transcript[step] = without_error_ids(await getattr(self, step)())
        return transcript

    # --- asking and waiting ---

    def shown(self) -> dict[str, Any]:
        return {name: view.result for name, view in self.views.items()}

    def title(self, issue: str) -> str:
        rows = self.views["deep"].result
        assert isinstance(rows, list)
        return next((row["title"] for row in rows if row["id"] == issue), "")

    async def sees(self, issue: str, title: str) -> None:
        await self.views["deep"].until(lambda _: self.title(issue) == title)

    def stored(self, issue: str) -> list[tuple[Any, ...]]:
        return self.store.query(f"SELECT title FROM issues WHERE id = '{issue}'")

    # --- the steps ---

    async def hydrate(self) -> Any:
        for view in self.views.values():
            await view.complete()
        shown = self.shown()
        assert [row["id"] for row in shown["discussed"]] == ["i1", "i2", "i3"]
        assert [row["id"] for row in shown["last"]] == ["i6", "i5"]
        assert shown["one"]["title"] == "issue 3"
        assert shown["mine"][0]["comments"] == [{"id": "c1", "issueId": "i1", "body": "comment 1"}]
        assert shown["comments"][1]["issue"]["owner"] == "u2"
        return shown

    async def write_from_elsewhere(self) -> Any:
        self.store.run("UPDATE issues SET title = 'elsewhere' WHERE id = 'i2'", "DELETE FROM comments WHERE id = 'c2'")
        await self.sees("i2", "elsewhere")
        return self.shown()

    async def accepted_mutation(self) -> Any:
        """It shows before the server knows of it, and stays."""
        mutation = self.ann.mutate.issue.setTitle({"id": "i1", "title": "by mutation"})
        assert self.title("i1") == "by mutation"
        assert self.stored("i1") == [("issue 1",)]
        await mutation
        assert self.stored("i1") == [("by mutation",)]
        assert self.ann.queued == []
        return self.shown()

    async def several_at_once(self) -> Any:
        made = [self.ann.mutate.issue.create({"id": f"n{n}", "title": f"new {n}", "owner": "u1"}) for n in range(4)]
        made.append(self.ann.mutate.comment.add({"id": "nc", "issueId": "n1", "body": "on a new one"}))
        made.append(self.ann.mutate.issue.delete({"id": "n2"}))
        before = self.shown()
        for mutation in made:
            await mutation
        assert self.shown() == before
        return before

    async def refused_mutation(self) -> Any:
        mutation = self.ann.mutate.issue.setTitle({"id": "i1", "title": "forbidden"})
        assert self.title("i1") == "forbidden"
        with pytest.raises(MutationRefused, match="not allowed by the server") as refused:
            await mutation
        assert self.title("i1") == "by mutation"
        return refused.value.result, self.shown()

    async def mutator_that_raises(self) -> Any:
        mutation = self.ann.mutate.issue.setTitle({"id": "i1", "title": "broken"})
        with pytest.raises(MutationRefused) as refused:
            await mutation
        assert self.title("i1") == "by mutation"
        return refused.value.result

    async def another_client(self) -> Any:
        """What one writes the other sees."""
        async with self.client("bob", user_id="bob", auth="bob-token") as bob:
            with bob.query(VIEWS["deep"]) as view:
                await view.complete()
                assert view.result == self.shown()["deep"]
                bob.mutate.issue.setTitle({"id": "i4", "title": "by bob"})
                await self.sees("i4", "by bob")
        return self.shown()

    async def what_the_server_must_check(self) -> Any:
        """An unknown mutator, wrong arguments, and in between one that is right: the refused ones stop nobody."""
        loose = {"nobody.knows": anything, "issue.setTitle": set_title, "comment.add": anything}
        async with self.client("loose", mutators=loose) as client:
            unknown = client.mutate.nobody.knows({})
            wrong = client.mutate.comment.add({"id": 7})
            right = client.mutate.issue.setTitle({"id": "i5", "title": "right"})
            told = [await _refusal(mutation) for mutation in (unknown, wrong)]
            await right
        assert self.stored("i5") == [("right",)]
        await self.sees("i5", "right")
        return told

    async def unknown_query(self) -> Any:
        with self.ann.query(nobody_knows()) as view, pytest.raises(QueryRefused) as refused:
            await view.complete()
        await self.ann.mutate.issue.setTitle({"id": "i6", "title": "still here"})
        return refused.value.where, refused.value.message

    async def offline_edit_of_a_process_that_ended(self) -> Any:
        """Queued while offline, and pushed by the next client of the file."""
        async with self.client("traveller") as client:
            with client.query(VIEWS["deep"]) as view:
                await view.complete()
            client.disconnect()
            client.mutate.issue.setTitle({"id": "i3", "title": "on the way"})
            client.mutate.issue.create({"id": "away", "title": "made offline"})
        shutil.copy(self.folder / "traveller.db", self.folder / "copy.db")
        async with self.client("traveller", offline=True) as client:
            view = client.query(VIEWS["deep"])
            assert isinstance(view.result, list)
            assert [row["title"] for row in view.result if row["id"] in ("i3", "away")] == [
                "made offline",
                "on the way",
            ]
            assert [mutation.name for mutation in client.queued] == ["issue.setTitle", "issue.create"]
            client.connect()
            await client.drained()
        await self.sees("i3", "on the way")
        await self.sees("away", "made offline")
        return self.shown()

    async def duplicate_push(self) -> Any:
        """The same mutations come again, from a copy of the file that had not heard of their confirmation."""
        self.store.run("UPDATE issues SET title = 'moved on' WHERE id = 'i3'")
        await self.sees("i3", "moved on")
        async with self.client("copy") as client:
            assert len(client.queued) == 2
            await client.drained()
            view = client.query(VIEWS["one"])
            await view.until(lambda row: isinstance(row, dict) and row["title"] == "moved on")
        assert self.stored("i3") == [("moved on",)]
        return self.shown()

    async def expired_token(self) -> Any:
        """Nothing is lost until there are new credentials."""
        self.app.accepted.discard("ann-token")
        mutation = self.ann.mutate.issue.setTitle({"id": "i1", "title": "with a new token"})
        state = await self.ann.wait_for("needs-auth")
        assert state.error is not None
        assert len(self.ann.queued) == 1
        self.app.accepted.add("ann-renewed")
        self.ann.connect("ann-renewed")
        await mutation
        self.app.accepted.add("ann-token")
        return state.error.kind, self.shown()

    async def application_out_of_order(self) -> Any:
        self.app.is_down = True
        mutation = self.ann.mutate.issue.setTitle({"id": "i1", "title": "at last"})
        with pytest.raises(MutationUnsettled) as unsettled:
            await mutation
        state = await self.ann.wait_for("error")
        with pytest.raises(Disconnected, match="PushFailed"):
            await self.ann.wait_for("connected")
        assert self.title("i1") == "at last"
        self.app.is_down = False
        self.ann.connect()
        await self.ann.drained()
        assert self.stored("i1") == [("at last",)]
        assert state.error is unsettled.value.error
        return state.error.kind, state.error.details["status"]

    async def cache_killed(self) -> Any:
        """The client comes back by itself, with its cookie, and what was done meanwhile arrives in both directions."""
        self.cache.kill()
        self.ann.mutate.issue.setTitle({"id": "n1", "title": "while it was away"})
        self.store.run("UPDATE issues SET title = 'while away' WHERE id = 'i5'")
        await asyncio.to_thread(self.cache.start)
        await self.sees("i5", "while away")
        await self.ann.drained()
        assert self.stored("n1") == [("while it was away",)]
        return self.shown()


async def _refusal(mutation: Awaitable[Any]) -> Any:
    with pytest.raises(MutationRefused) as refused:
        await mutation
    return refused.value.result


STEPS: Sequence[str] = (
    "hydrate",
    "write_from_elsewhere",
    "accepted_mutation",
    "several_at_once",
    "refused_mutation",
    "mutator_that_raises",
    "another_client",
    "what_the_server_must_check",
    "unknown_query",
    "offline_edit_of_a_process_that_ended",
    "duplicate_push",
    "expired_token",
    "application_out_of_order",
    "cache_killed",
)
MakeCache = Callable[[str, TrackerApp, Path], ReferenceCache | ZeroCache]
