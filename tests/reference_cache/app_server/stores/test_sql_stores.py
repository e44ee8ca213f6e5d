"""Mutators over real SQLite, Postgres and MariaDB databases: all or nothing, once, in order, whatever breaks."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from adapters.postgres.connection import connect
from adapters.postgres.system_tables import ensure_system_tables
from protocol.sync.app_server import CLEANUP
from reference_cache.app_server import ApplicationError, Mutators
from reference_cache.app_server.push_processor import PushProcessor
from reference_cache.app_server.requests import parse_push
from reference_cache.app_server.stores import connection_thread
from reference_cache.app_server.stores.mysql import MysqlStore
from reference_cache.app_server.stores.postgres import PostgresStore, PostgresTransaction
from reference_cache.app_server.stores.sql_transaction import SqlTransaction
from reference_cache.app_server.stores.sqlite import SqliteStore, SqliteTransaction
from reference_cache.app_server.stores.store import ClientKey
from reference_cache.zql.schema import schema, table
from tests.support.apps.store import AppStore, mysql_app_store, postgres_app_store, sqlite_app_store
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.push_processor import push

SCHEMA = schema([table("counter", {"id": "number", "n": "number", "notes": "json?"})], {})
COUNTER = "CREATE TABLE counter (id INTEGER PRIMARY KEY NOT NULL, n INTEGER, notes JSON)"
mutators = Mutators()


@mutators.define("set")
async def set_counter(tx: SqlTransaction, args: dict[str, Any]) -> None:
    await tx.upsert("counter", args)


@mutators.define("every verb")
async def every_verb(tx: SqlTransaction) -> None:
    await tx.insert("counter", {"id": 1, "n": 1, "notes": {"a": [1, None]}})
    await tx.insert("counter", {"id": 2, "n": 2})
    await tx.update("counter", {"id": 1, "n": 10})
    await tx.update("counter", {"id": 99, "n": 10})
    await tx.delete("counter", {"id": 2})
    await tx.delete("counter", {"id": 99})
    assert await tx.execute("SELECT id, n FROM counter") == [{"id": 1, "n": 10}]


@mutators.define("add")
async def add(tx: SqlTransaction) -> None:
    await tx.execute("UPDATE counter SET n = n + 1 WHERE id = 1")


@mutators.define("write and fail")
async def write_and_fail(tx: SqlTransaction) -> None:
    await tx.insert("counter", {"id": 7, "n": 7})
    await tx.insert("counter", {"id": 7, "n": 8})


@mutators.define("hang")
async def hang(tx: SqlTransaction, ctx: asyncio.Event) -> None:
    await tx.insert("counter", {"id": 8, "n": 8})
    ctx.set()
    await asyncio.Event().wait()


@mutators.define("go on after an error")
async def go_on(tx: SqlTransaction) -> None:
    try:
        await tx.execute("SELECT * FROM nowhere")
    except Exception:
        return


class App:
    """A database, and the mutators over it."""

    def __init__(self, database: AppStore, store: SqliteStore | PostgresStore | MysqlStore) -> None:
        self.database, self.store = database, store
        self.processor = PushProcessor(mutators, store)

    async def push(
        self, *mutations: tuple[int, str, Any], ctx: object = None, client: str = "c", group: str = "g"
    ) -> list[Any]:
        """The results, or the reason and the ids of a failure."""
        listed = [
            {"type": "custom", "id": id_, "clientID": client, "name": name, "args": [] if args is None else [args]}
            for id_, name, args in mutations
        ]
        body = {"clientGroupID": group, "mutations": listed, "pushVersion": 1}
        answer = await self.processor.process(parse_push(body), "zero_0", ctx)
        if answer["kind"] == "PushFailed":
            return [answer["reason"], [each["id"] for each in answer["mutationIDs"]], answer["message"]]
        return [each["result"] for each in answer["mutations"]]

    def counters(self) -> list[tuple[Any, ...]]:
        return self.database.query("SELECT id, n FROM counter ORDER BY id")

    def last_id(self) -> list[tuple[Any, ...]]:
        return self.database.query('SELECT "clientGroupID", "clientID", "lastMutationID" FROM {clients}')

    def results(self) -> list[tuple[Any, Any]]:
        rows = self.database.query('SELECT "mutationID", result FROM {mutations} ORDER BY 1')
        return [(id_, json.loads(result) if isinstance(result, str) else result) for id_, result in rows]


def postgres_database(server: PostgresServer) -> AppStore:
    database = postgres_app_store(server.create_database("app"), COUNTER)
    with connect(database.settings["dsn"]) as db:
        ensure_system_tables(db, "zero", 0, "zero_test")
    return database


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    if request.param == "sqlite":
        file = sqlite_app_store(tmp_path / "app.db", COUNTER)
        store = SqliteStore(tmp_path / "app.db", SCHEMA)
        yield App(file, store)
        store.close()
    elif request.param == "postgres":
        database = postgres_database(request.getfixturevalue("postgres"))
        over = PostgresStore(database.settings["dsn"], SCHEMA)
        yield App(database, over)
        await over.close()
    else:
        database = mysql_app_store(request.getfixturevalue("mariadb"), COUNTER)
        mysql = MysqlStore(database.settings["url"], SCHEMA)
        yield App(database, mysql)
        await mysql.close()


async def test_rows_are_written_with_the_id_that_confirms_them(app: App) -> None:
    assert await app.push((1, "every verb", None), (2, "set", {"id": 3, "n": 3})) == [{}, {}]
    assert app.counters() == [(1, 10), (3, 3)]
    ((notes,),) = app.database.query("SELECT notes FROM counter WHERE id = 1")
    assert (json.loads(notes) if isinstance(notes, str) else notes) == {"a": [1, None]}
    assert app.last_id() == [("g", "c", 2)]


async def test_a_mutation_that_fails_leaves_its_result_and_nothing_else(app: App) -> None:
    first, second = await app.push((1, "write and fail", None), (2, "set", {"id": 1, "n": 1}))
    assert (first["error"], second) == ("app", {})
    assert app.counters() == [(1, 1)]
    assert app.last_id() == [("g", "c", 2)]
    assert app.results() == [(1, first)]
    one = {"type": "single", "clientGroupID": "g", "clientID": "c", "upToMutationID": 1}
    assert await app.push((0, CLEANUP, one)) == []
    assert app.results() == []


async def test_results_of_clients_that_are_gone_are_deleted_together(app: App) -> None:
    for client in ("a", "b", "c"):
        await app.push((1, "nobody", None), client=client)
    await app.push((0, CLEANUP, {"type": "bulk", "clientGroupID": "g", "clientIDs": ["a", "b"]}))
    assert [result["message"] for _, result in app.results()] == ["Mutator not found: nobody"]


async def test_a_push_that_comes_several_times_at_once_is_done_once(app: App) -> None:
    await app.push((1, "set", {"id": 1, "n": 0}))
    answers = await asyncio.gather(*(app.push((2, "add", None)) for _ in range(5)))
    assert app.counters() == [(1, 1)]
    assert sorted(str(answer[0].get("error")) for answer in answers) == ["None"] + ["alreadyProcessed"] * 4


async def test_a_gap_writes_nothing(app: App) -> None:
    reason, ids, message = await app.push((2, "set", {"id": 1, "n": 1}))
    assert (reason, ids) == ("oooMutation", [2])
    assert message == "Client c sent mutation ID 2 but expected 1"
    assert (app.counters(), app.last_id()) == ([], [])


async def test_a_request_that_is_given_up_midway_leaves_nothing_and_blocks_nobody(app: App) -> None:
    begun = asyncio.Event()
    task = asyncio.create_task(app.push((1, "hang", None), ctx=begun))
    await asyncio.wait_for(begun.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await app.push((1, "set", {"id": 1, "n": 1})) == [{}]
    assert app.counters() == [(1, 1)]


def logged(message: str, caplog: pytest.LogCaptureFixture) -> str:
    """What the log has under the id in the client's message, which has nothing else."""
    (found,) = re.findall("error id ([0-9a-f]+)$", message)
    (record,) = [each for each in caplog.records if getattr(each, "fields", {}).get("error_id") == found]
    assert record.exc_info is not None
    return str(record.exc_info[1])


async def test_missing_tables_are_logged_with_the_remedy_and_nothing_is_confirmed(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    app.database.query("DROP TABLE {clients}")
    reason, ids, message = await app.push((1, "set", {"id": 1, "n": 1}))
    assert (reason, ids) == ("database", [1])
    why = logged(message, caplog)
    assert "change source once" in why or "create_system_tables" in why
    assert app.counters() == []


async def test_the_tables_are_left_as_the_official_push_processor_leaves_them(postgres: PostgresServer) -> None:
    """The same mutations through both, each over a database of its own."""
    ours, official = Mutators(), postgres_database(postgres)
    pushes: list[tuple[str, dict[str, Any]]] = [
        ("counter|set", {"id": 1, "n": 1}),
        ("counter|refuse", {}),
        ("counter|set", {"id": 1, "n": 2}),
        ("counter|refuse", {}),
    ]

    @ours.define("counter.set")
    async def put(tx: SqlTransaction, args: dict[str, int]) -> None:
        await tx.upsert("counter", args)

    @ours.define("counter.refuse")
    async def no(args: dict[str, int]) -> None:
        raise ApplicationError("refused", {"code": 7})

    await asyncio.to_thread(push, official.settings["dsn"], pushes)
    database = postgres_database(postgres)
    store = PostgresStore(database.settings["dsn"], SCHEMA)
    app = App(database, store)
    app.processor = PushProcessor(ours, store)
    await app.push(
        *((id_, name, args) for id_, (name, args) in enumerate(pushes, start=1)), client="client", group="group"
    )
    await store.close()
    for name in ("{clients}", "{mutations}", "counter"):
        statement = f"SELECT * FROM {name} ORDER BY 1, 2"
        assert database.query(statement) == official.query(statement)
    assert len(database.query("SELECT * FROM {mutations}")) == 2


async def test_a_mutator_that_passes_over_an_error_of_postgres_is_refused_not_lost(postgres: PostgresServer) -> None:
    """The server would roll the transaction back and say nothing."""
    database = postgres_database(postgres)
    store = PostgresStore(database.settings["dsn"], SCHEMA)
    app = App(database, store)
    (result,) = await app.push((1, "go on after an error", None))
    assert result["error"] == "app"
    assert app.last_id() == [("g", "c", 1)]
    await store.close()


async def test_a_connection_that_died_in_the_meantime_is_replaced(postgres: PostgresServer) -> None:
    database = postgres_database(postgres)
    store = PostgresStore(database.settings["dsn"], SCHEMA)
    app = App(database, store)
    await app.push((1, "set", {"id": 1, "n": 1}))
    name = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
    database.query(name + "pg_backend_pid()")
    assert await app.push((2, "add", None)) == [{}]
    assert app.counters() == [(1, 2)]
    await store.close()


async def test_a_connection_that_dies_under_a_mutation_does_not_have_it_refused(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    fatal = Mutators()
    runs: list[int] = []

    @fatal.define("set first", args=int)
    async def set_first(tx: PostgresTransaction, args: int) -> None:
        runs.append(args)
        await tx.upsert("counter", {"id": 1, "n": args})
        if len(runs) == 1:
            await tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    database = postgres_database(postgres)
    store = PostgresStore(database.settings["dsn"], SCHEMA)
    app = App(database, store)
    app.processor = PushProcessor(fatal, store)
    reason, ids, message = await app.push((1, "set first", 5))
    assert (reason, ids) == ("database", [1])
    assert logged(message, caplog).startswith("Lost the database in a transaction")
    assert await app.push((1, "set first", 5)) == [{}]
    assert app.counters() == [(1, 5)]
    assert app.results() == []
    await store.close()


async def test_a_deadlock_is_tried_again(postgres: PostgresServer) -> None:
    """Two mutations take the same two rows in opposite order; the database gives one of them up."""
    both = Mutators()
    met = asyncio.Barrier(2)
    runs: list[int] = []

    @both.define("cross", args=list[int])
    async def cross(tx: PostgresTransaction, args: list[int]) -> None:
        runs.append(args[0])
        await tx.execute("UPDATE counter SET n = n + 1 WHERE id = %s", [args[0]])
        if len(runs) <= 2:
            await met.wait()
        await tx.execute("UPDATE counter SET n = n + 1 WHERE id = %s", [args[1]])

    database = postgres_database(postgres)
    store = PostgresStore(database.settings["dsn"], SCHEMA)
    app = App(database, store)
    await app.push((1, "set", {"id": 1, "n": 0}), (2, "set", {"id": 2, "n": 0}))
    app.processor = PushProcessor(both, store)
    answers = await asyncio.gather(
        app.push((1, "cross", [1, 2]), client="x"), app.push((1, "cross", [2, 1]), client="y")
    )
    assert list(answers) == [[{}], [{}]]
    assert app.counters() == [(1, 2), (2, 2)]
    # At least one run is repeated. The repeated one may lock its first row before the other run wakes up, and is then
    # the victim once more.
    assert len(runs) >= 3
    await store.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: SqliteStore(folder / "no" / "such.db", SCHEMA),
        lambda folder: PostgresStore("postgresql://127.0.0.1:1/nowhere", SCHEMA),
        lambda folder: MysqlStore("mysql://127.0.0.1:1/nowhere", SCHEMA),
    ],
)
async def test_a_store_that_cannot_be_reached_keeps_the_mutations(
    make: Callable[[Path], SqliteStore | PostgresStore | MysqlStore], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(sqlite_app_store(tmp_path / "unused.db"), make(tmp_path))
    reason, ids, message = await app.push((1, "add", None), (2, "add", None))
    assert (reason, ids) == ("database", [1, 2])
    assert logged(message, caplog).startswith("Failed to open database transaction")


async def test_a_reader_that_delays_a_commit_does_not_have_the_mutation_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a rollback journal, one who reads keeps others from committing; here until the first attempt gave up."""
    file = sqlite_app_store(tmp_path / "app.db", COUNTER, "INSERT INTO counter (id, n) VALUES (1, 0)")
    reader = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    reader.execute("PRAGMA journal_mode = DELETE")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM counter").fetchall()

    class Watched(SqliteStore):
        begun = 0

        @asynccontextmanager
        async def transaction(self, client: ClientKey) -> AsyncIterator[SqliteTransaction]:
            self.begun += 1
            if self.begun == 2:
                reader.close()
            async with super().transaction(client) as transaction:
                yield transaction

    monkeypatch.setattr(connection_thread, "BUSY_SECONDS", 0.1)
    store = Watched(tmp_path / "app.db", SCHEMA)
    app = App(file, store)
    reason, ids, message = await app.push((1, "add", None))
    assert (reason, ids) == ("database", [1])
    assert logged(message, caplog) == "Failed to commit database transaction: database is locked"
    assert await app.push((1, "add", None)) == [{}]
    assert app.counters() == [(1, 1)]
    assert app.results() == []
    store.close()


def test_the_system_tables_may_be_made_twice(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "app.db", SCHEMA)
    store.create_system_tables("app", 3)
    store.create_system_tables("app", 3)
    store.close()
    with sqlite3.connect(tmp_path / "app.db") as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
    assert names == ["app_3.clients", "app_3.mutations"]


def test_the_driver_of_postgres_counts_deadlocks_as_passing() -> None:
    store = PostgresStore("", SCHEMA)
    assert store.is_transient(psycopg.errors.DeadlockDetected())
    assert not store.is_transient(psycopg.errors.UniqueViolation())
