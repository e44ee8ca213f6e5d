"""An official zero-cache that loses its replica, its change DB, or both comes back with what the upstream holds.

zero-cache compares the commit watermark of an initial sync with the `replicaVersion` in its change DB: if it is the
same, it keeps the change DB, whose older changes it has purged, and the new replica is stale for good. So every
initial sync must have a watermark of its own, and must show the log's head: a client that connects right after the
loss must not see rows that were deleted long ago.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from tests.support.fixtures.zero_cache import zero_caches
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.serving import Serving
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing
from tests.support.peers.zero_cache import ZeroCache
from tests.support.peers.zero_client import ZeroClient
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

TABLE = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)"
SCHEMA = {"item": {"id": "number", "name": "string"}}
ALLOW_ALL = {"tables": {"item": {"row": {"select": [["allow", {"type": "and", "conditions": []}]]}}}}
PURGE_SECONDS = 120
#: What zero-cache runs by itself about 30 s after its replica has the changes.
PURGE = """DELETE FROM "zero_0/cdc"."changeLog"
WHERE watermark < (SELECT max(watermark) FROM "zero_0/cdc"."changeLog")"""


@dataclass(slots=True)
class World:
    """One upstream, its endpoint, one zero-cache, and a client that stays connected through everything."""

    run: Callable[..., None]
    query: Callable[[str], list[tuple[object, ...]]]
    endpoint: Serving
    cache: ZeroCache
    database: str
    folder: Path
    # Rows that were deleted upstream; their ids are never used again.
    deleted: set[int] = field(default_factory=set)
    # The next id to insert.
    next_id: int = 1

    def write(self) -> None:
        """Some transactions: three rows more, one of those before changed, one gone."""
        first, self.next_id = self.next_id, self.next_id + 3
        for number in range(first, self.next_id):
            self.run(f"INSERT INTO item (id, name) VALUES ({number}, 'new {number}')")
        self.run(f"UPDATE item SET name = 'changed at {first}' WHERE id = {first}")
        self.run(f"DELETE FROM item WHERE id = {first + 1}")
        self.deleted.add(first + 1)

    def rows(self) -> list[tuple[object, ...]]:
        return self.query("SELECT * FROM item ORDER BY id")

    def expected(self) -> list[dict[str, object]]:
        """The rows as a client shows them."""
        return [dict(zip(("id", "name", "note"), row, strict=False)) for row in self.rows()]

    def wait_until_same(self) -> None:
        def same() -> bool:
            found = self.cache.replica.try_query("SELECT * FROM item ORDER BY id")
            # zero-cache's own column is the last that it creates with the table, and columns added later follow it.
            return found is not None and [_without_version(row) for row in found] == self.rows()

        until(same, "the replica to equal the upstream", seconds=120)

    def show_to_a_new_client(self) -> None:
        with ZeroClient(self.cache.url, SCHEMA, user=f"user{self.next_id}") as client:
            client.wait_for_rows("item", self.expected())
            assert not returned(client, self.deleted)

    def purge(self) -> None:
        with closing(psycopg.connect(self.database, autocommit=True)) as db:
            db.execute(PURGE)

    def wait_for_the_official_purge(self) -> None:
        """Until zero-cache has forgotten the first change that followed its initial sync."""
        with closing(psycopg.connect(self.database, autocommit=True)) as db:
            oldest = 'SELECT min(watermark) FROM "zero_0/cdc"."changeLog"'
            before = db.execute(oldest).fetchone()
            until(lambda: db.execute(oldest).fetchone() != before, "zero-cache's purge", seconds=PURGE_SECONDS)

    def lose_replica(self) -> None:
        for path in self.folder.glob(f"{self.cache.replica.path.name}*"):
            path.unlink()

    def lose_change_db(self) -> None:
        with closing(psycopg.connect(self.database, autocommit=True)) as db:
            db.execute('DROP SCHEMA "zero_0/cdc" CASCADE')

    def lose_both(self) -> None:
        self.lose_replica()
        self.lose_change_db()

    def keep_copy(self) -> None:
        copies = self.folder / "older"
        copies.mkdir(exist_ok=True)
        for path in self.folder.glob(f"{self.cache.replica.path.name}*"):
            shutil.copy(path, copies)

    def restore_copy(self) -> None:
        self.lose_replica()
        for path in (self.folder / "older").iterdir():
            shutil.copy(path, self.folder)

    def after(self, loss: Callable[[], None]) -> None:
        """Stop the cache, lose something, write on meanwhile, start again: everything is as it is upstream."""
        self.cache.stop()
        self.purge()
        loss()
        self.write()
        self.cache.start()
        self.wait_until_same()

    def while_the_endpoint_is_down(self, loss: Callable[[Path], None]) -> None:
        """Stop the endpoint, change its state directory, write on meanwhile, start again."""
        self.endpoint.stop()
        loss(self.endpoint.state)
        self.write()
        self.endpoint.start(seconds=SPARK_SECONDS)
        self.write()
        self.wait_until_same()


def _without_version(row: tuple[object, ...]) -> tuple[object, ...]:
    return (*row[:2], *row[3:])


def returned(client: ZeroClient, deleted: set[int]) -> set[int]:
    """Deleted rows that a client showed again after it had shown a complete result without them."""
    gone: set[int] = set()
    back: set[int] = set()
    seen: set[int] = set()
    for event in client.events:
        if event["event"] == "rows" and event["result"] == "complete":
            shown = {row["id"] for row in event["rows"]} & deleted
            back |= shown & gone
            gone |= seen - shown
            seen |= shown
    return back


@pytest.fixture
def world(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer, logical_postgres: PostgresServer
) -> Iterator[World]:
    kind = getattr(request, "param", "sqlite")
    with ExitStack() as stack:
        if kind == "postgres-on-spark":
            url = logical_postgres.create_database("upstream")
            db = stack.enter_context(closing(psycopg.connect(url, autocommit=True)))
            db.execute(TABLE)
            db.execute("CREATE PUBLICATION items FOR TABLE item")
            settings = {"dsn": url, "publication": "items"}
            endpoint: Serving = SparkServing("postgres", settings, tmp_path / "state")
            run = lambda *statements: [db.execute(statement) for statement in statements]  # noqa: E731
            query = lambda sql: db.execute(sql).fetchall()  # noqa: E731
        else:
            store = SqliteStore(tmp_path / "app.db", TABLE)
            run, query = store.run, store.query  # type: ignore[assignment]
            log = ("--log", postgres.create_database("log")) if kind == "log-in-postgres" else ()
            options = ("--permissions", "allow-all", *log)
            endpoint = Serving("sqlite", {"path": str(store.path)}, tmp_path / "state", options=options)
        stack.enter_context(endpoint).start(seconds=SPARK_SECONDS)
        if kind == "postgres-on-spark":
            # There the adapter syncs the permissions that the database holds.
            db.execute("UPDATE zero.permissions SET permissions = %s", (json.dumps(ALLOW_ALL),))
        stack.callback(lambda: print(endpoint.process.tail(60)))
        folder = tmp_path / "zero"
        folder.mkdir()
        make = stack.enter_context(zero_caches(postgres, folder))
        cache = make(endpoint.stream_url, supervised=True)
        database = cache._env["ZERO_CHANGE_DB"]
        yield World(run, query, endpoint, cache, database, folder)  # type: ignore[arg-type]


def begin(world: World) -> None:
    """A first initial sync, and changes after it that zero-cache has purged from its change DB."""
    world.write()
    world.cache.start()
    for _ in range(3):
        world.write()
    world.wait_until_same()


@pytest.mark.parametrize("world", ["log-in-postgres", "postgres-on-spark"], indirect=True)
def test_a_lost_replica_comes_back_with_what_the_upstream_holds(world: World) -> None:
    begin(world)
    versions = [world.cache.replica.version()]
    world.run("ALTER TABLE item ADD COLUMN note TEXT", "UPDATE item SET note = 'added' WHERE id = 1")
    world.wait_until_same()
    world.after(world.lose_replica)
    world.show_to_a_new_client()
    versions.append(world.cache.replica.version())
    world.after(world.lose_both)
    versions.append(world.cache.replica.version())
    assert versions == sorted(set(versions)), "every initial sync has a watermark above those before"


def test_whatever_a_cache_loses_it_shows_what_the_upstream_holds(world: World) -> None:
    begin(world)
    versions = [world.cache.replica.version()]
    with ZeroClient(world.cache.url, SCHEMA) as staying:
        world.after(world.lose_replica)
        world.show_to_a_new_client()
        versions.append(world.cache.replica.version())
        world.write()
        world.wait_until_same()
        world.cache.stop()
        world.keep_copy()
        world.cache.start()

        world.run("ALTER TABLE item ADD COLUMN note TEXT", "UPDATE item SET note = 'added' WHERE id = 1")
        world.after(world.lose_change_db)
        world.after(world.lose_both)
        versions.append(world.cache.replica.version())

        for _ in range(2):  # twice with nothing written in between
            world.cache.stop()
            world.lose_replica()
            world.cache.start()
            world.wait_until_same()
            versions.append(world.cache.replica.version())

        world.after(world.restore_copy)
        versions.append(world.cache.replica.version())

        staying.wait_for_rows("item", world.expected())
        assert not returned(staying, world.deleted)
    assert versions == sorted(set(versions)), "every initial sync has a watermark above those before"


def forget_consumers(state: Path) -> None:
    files = list(state.glob("subscribers.sqlite*"))
    assert files
    for path in files:
        path.unlink()


@pytest.mark.faults
def test_an_endpoint_that_lost_its_record_of_consumers_serves_what_the_upstream_holds(world: World) -> None:
    begin(world)
    versions = [world.cache.replica.version()]
    with ZeroClient(world.cache.url, SCHEMA) as staying:
        world.while_the_endpoint_is_down(forget_consumers)
        world.after(world.lose_replica)
        versions.append(world.cache.replica.version())
        world.while_the_endpoint_is_down(forget_consumers)
        world.after(world.lose_change_db)
        versions.append(world.cache.replica.version())
        staying.wait_for_rows("item", world.expected())
        assert not returned(staying, world.deleted)
    assert versions == sorted(versions)
    assert versions[0] < versions[1]


@pytest.mark.faults
@pytest.mark.parametrize("lost_too", ["nothing", "replica", "change_db"])
def test_an_endpoint_restored_from_an_older_copy_serves_what_the_upstream_holds(world: World, lost_too: str) -> None:
    begin(world)
    older = world.folder / "older-state"

    def keep_copy(state: Path) -> None:
        shutil.copytree(state, older)

    world.while_the_endpoint_is_down(keep_copy)
    for _ in range(2):
        world.after(world.lose_replica)
    version = world.cache.replica.version()

    def restore(state: Path) -> None:
        shutil.rmtree(state)
        shutil.copytree(older, state)

    with ZeroClient(world.cache.url, SCHEMA) as staying:
        staying.wait_for_rows("item", world.expected())
        if lost_too != "nothing":
            world.cache.stop()
            getattr(world, f"lose_{lost_too}")()
            world.endpoint.stop()
            restore(world.endpoint.state)
            world.write()
            world.endpoint.start(seconds=SPARK_SECONDS)
            world.cache.start()
            world.wait_until_same()
        else:
            world.while_the_endpoint_is_down(restore)
        staying.wait_for_rows("item", world.expected())
        assert not returned(staying, world.deleted)
    assert world.cache.replica.version() > version
    world.show_to_a_new_client()


@pytest.mark.faults
def test_a_replica_lost_after_the_official_purge_comes_back(world: World) -> None:
    begin(world)
    world.wait_for_the_official_purge()
    world.cache.stop()
    world.lose_replica()
    world.write()
    world.cache.start()
    world.wait_until_same()
