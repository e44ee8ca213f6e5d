"""Random sessions of Python clients on one cache: what they did, in whatever order it arrived, they all see in the end.

A session is a few clients that query, mutate, lose their connection, go offline and come back, end and start again from
their file. At its end everyone is connected, the queues are empty, and each client's views equal what the store says.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

from changesource_sdk.testing.faults import Link
from protocol.sync.errors import ErrorKind
from reference_cache.client import Client, Disconnected, LiveView, MutationRefused
from reference_cache.client.local.tables import LocalTables
from reference_cache.zql.query.builder import QueryBuilder
from reference_cache.zql.schema import Row
from tests.support.apps.store import AppStore, sqlite_app_store
from tests.support.apps.tracker import TABLES, TRACKER, TrackerApp, mutators, q
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.peers.serving import Serving
from tests.support.peers.zero_cache import ZeroCache

Cache = ReferenceCache | ZeroCache
MakeCache = Callable[[str, dict[str, str]], Cache]
"""Of the stream's address and the application's settings: a cache that is not started yet."""

SECONDS = 120.0
PASSING = (ErrorKind.PUSH_FAILED, ErrorKind.TRANSFORM_FAILED)
"""What a cache says of an application that is unwell; a program connects again then."""

LINES = 40
"""What is shown of the cache's log about a client that got no further."""

CLIENTS = 3
ACTIONS = 25
ALL = q.table("issue").related("comments", lambda comments: comments.order_by("id"))
WINDOWS = (
    q.table("issue").where("open", True).order_by("title", "desc").limit(3).related("comments"),
    q.table("comment").related("issue"),
    q.table("issue").where_exists("comments", lambda comments: comments.where("body", "LIKE", "%1%")),
)


class SessionWorld:
    """A store, its endpoint, its application, a cache, and a wire to it that can be cut."""

    def __init__(self, store: AppStore, app: TrackerApp, cache: Cache, wire: Link, folder: Path) -> None:
        self.store, self.app, self.cache, self.wire, self.folder = store, app, cache, wire, folder
        self.url = f"http://127.0.0.1:{wire.port}"

    def rows(self) -> dict[str, list[Row]]:
        """What the store has now, as rows of the clients' schema."""
        issues = self.store.query("SELECT id, title, open, owner_id FROM issues")
        return {
            "issue": [(id, title, bool(is_open), owner) for id, title, is_open, owner in issues],
            "comment": self.store.query("SELECT id, issue_id, body FROM comments"),
        }


@contextmanager
def session_world(folder: Path, make_cache: MakeCache | None = None) -> Iterator[SessionWorld]:
    """With our cache, or the one that `make_cache` makes."""

    def ours(source: str, settings: dict[str, str]) -> ReferenceCache:
        return ReferenceCache(source, folder, settings=settings)

    with ExitStack() as stack:
        store = sqlite_app_store(folder / "app.db", *TABLES)
        options = ("--permissions", "allow-all", "--runner", "inline")
        endpoint = stack.enter_context(Serving(store.adapter, store.settings, folder / "state", options=options))
        endpoint.start()
        app = stack.enter_context(TrackerApp(folder / "app.db", "u-token", "ann-token"))
        cache = (make_cache or ours)(endpoint.stream_url, app.settings)
        stack.enter_context(cache)
        cache.start()
        stack.callback(lambda: print(f"--- cache ---\n{cache.process.tail(60)}"))
        wire = stack.enter_context(Link("127.0.0.1", cache.port))
        yield SessionWorld(store, app, cache, wire, folder)


class Player:
    """One client of a session, through its restarts."""

    def __init__(self, world: SessionWorld, name: str, chance: random.Random) -> None:
        self._world, self._name, self._chance = world, name, chance
        self._refused = 0

    async def start(self) -> None:
        file = self._world.folder / f"{self._name}.db"
        self.client = Client(self._world.url, TRACKER, mutators=mutators, user_id="u", auth="u-token", store=file)
        await self.client.open()
        self.all = self.client.query(ALL)
        self._windows: list[tuple[QueryBuilder, LiveView]] = []

    async def act(self) -> None:
        kinds = ["mutate"] * 8 + ["cut", "offline", "online", "restart", "window", "window"]
        await getattr(self, f"_{self._chance.choice(kinds)}")()

    async def _mutate(self) -> None:
        chance = self._chance
        issue, number = f"i{chance.randint(1, 9)}", chance.randint(1, 99)
        title = "forbidden" if chance.random() < 0.1 else f"title {number}"
        choices: list[tuple[str, dict[str, Any]]] = [
            ("issue.setTitle", {"id": issue, "title": title}),
            ("issue.create", {"id": f"{self._name}-{number}", "title": title, "open": number % 2 == 0}),
            ("issue.delete", {"id": issue}),
            ("comment.add", {"id": f"c{number}", "issueId": issue, "body": f"comment {number}"}),
        ]
        name, args = chance.choice(choices)
        self.client.mutate[name](args).server.add_done_callback(self._note)

    def _note(self, done: asyncio.Future[Any]) -> None:
        self._refused += not done.cancelled() and isinstance(done.exception(), MutationRefused)

    async def _cut(self) -> None:
        self._world.wire.cut()

    async def _offline(self) -> None:
        self.client.disconnect()

    async def _online(self) -> None:
        self.client.connect()

    async def _restart(self) -> None:
        await self.client.close()
        await self.start()

    async def _window(self) -> None:
        if self._windows and self._chance.random() < 0.5:
            self._windows.pop()[1].close()
        else:
            query = self._chance.choice(WINDOWS)
            self._windows.append((query, self.client.query(query)))

    async def converges(self, fresh: LocalTables) -> None:
        """Until every view of this client shows what its query makes of the store's rows, read anew."""
        for query, view in [(ALL, self.all), *self._windows]:
            expected = fresh.draft().run(query)
            await view.complete()
            await view.until(partial(eq, expected))

    def standing(self) -> str:
        """Where the client is, and what store and cache know of it, for who wonders why it got no further."""
        who = self.client.client_id
        stored = self._world.store.query(f'SELECT "lastMutationID" FROM {{clients}} WHERE "clientID" = \'{who}\'')
        said = [line for line in self._world.cache.process.lines if who in line][-LINES:]
        queued = [each.id for each in self.client.queued]
        return "\n".join([f"{self._name}: {self.client.state}, queued {queued}, in the store {stored}", *said])

    async def come_home(self) -> None:
        while True:
            self.client.connect()
            try:
                await self.client.drained()
                return
            except Disconnected as stopped:
                if self._world.app.unwell is None or stopped.kind not in PASSING:
                    raise


async def play(world: SessionWorld, seed: int, *, unwell: bool = False) -> None:
    """One session, with an application that is `unwell` until all is confirmed; fails if anyone's view is not the
    store's in the end.
    """
    chance = random.Random(seed)
    world.app.unwell = random.Random(seed) if unwell else None
    players = [Player(world, f"s{seed}p{number}", chance) for number in range(CLIENTS)]
    try:
        async with asyncio.timeout(SECONDS):
            for player in players:
                await player.start()
            for _ in range(ACTIONS):
                await chance.choice(players).act()
                # Lets the network have a word in between, now and then a long one.
                await asyncio.sleep(chance.choice([0, 0, 0, 0.01, 0.05]))
            for player in players:
                await player.come_home()
            world.app.unwell = None
            for player in players:
                player.client.connect()
            fresh = LocalTables(TRACKER, await asyncio.to_thread(world.rows))
            for player in players:
                await player.converges(fresh)
    except TimeoutError as error:
        standing = await asyncio.to_thread(lambda: "\n".join(player.standing() for player in players))
        raise AssertionError(f"session {seed}:\n{standing}") from error
    finally:
        for player in players:
            await player.client.close()
