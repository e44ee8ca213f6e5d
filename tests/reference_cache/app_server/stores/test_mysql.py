"""What is special about MySQL and MariaDB: lost connections, deadlocks, ids that differ by case, strict values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pymysql
import pytest

from reference_cache.app_server import Mutators
from reference_cache.app_server.push_processor import PushProcessor
from reference_cache.app_server.stores.mysql import MysqlStore, MysqlTransaction
from tests.reference_cache.app_server.stores.test_sql_stores import COUNTER, SCHEMA, App, logged
from tests.support.apps.store import mysql_app_store
from tests.support.peers.mariadb_server import MariadbServer


@pytest.fixture
async def app(mariadb: MariadbServer) -> AsyncIterator[App]:
    database = mysql_app_store(mariadb, COUNTER)
    store = MysqlStore(database.settings["url"], SCHEMA)
    yield App(database, store)
    await store.close()


def own(app: App, mutators: Mutators) -> None:
    """Let the application have other mutators."""
    app.processor = PushProcessor(mutators, app.store)


def kill_others(app: App) -> None:
    """Kill every other connection of the application's."""
    query = "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND db = database()"
    for (number,) in app.database.query(query):
        app.database.query(f"KILL {number}")


async def test_a_connection_that_died_in_the_meantime_is_replaced(app: App) -> None:
    await app.push((1, "set", {"id": 1, "n": 1}))
    kill_others(app)
    assert await app.push((2, "add", None)) == [{}]
    assert app.counters() == [(1, 2)]


async def test_a_connection_that_dies_under_a_mutation_does_not_have_it_refused(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    fatal = Mutators()
    runs: list[int] = []

    @fatal.define("set first", args=int)
    async def set_first(tx: MysqlTransaction, args: int) -> None:
        runs.append(args)
        await tx.upsert("counter", {"id": 1, "n": args})
        if len(runs) == 1:
            kill_others(app)
            await tx.execute("SELECT 1")

    own(app, fatal)
    reason, ids, message = await app.push((1, "set first", 5))
    assert (reason, ids) == ("database", [1])
    assert logged(message, caplog).startswith("Lost the database in a transaction")
    assert await app.push((1, "set first", 5)) == [{}]
    assert app.counters() == [(1, 5)]
    assert app.results() == []


async def test_a_deadlock_is_tried_again(app: App) -> None:
    """Two mutations take the same two rows in opposite order; the database gives one of them up."""
    both = Mutators()
    met = asyncio.Barrier(2)
    runs: list[int] = []

    @both.define("cross", args=list[int])
    async def cross(tx: MysqlTransaction, args: list[int]) -> None:
        runs.append(args[0])
        await tx.execute("UPDATE counter SET n = n + 1 WHERE id = %s", [args[0]])
        if len(runs) <= 2:
            await met.wait()
        await tx.execute("UPDATE counter SET n = n + 1 WHERE id = %s", [args[1]])

    await app.push((1, "set", {"id": 1, "n": 0}), (2, "set", {"id": 2, "n": 0}))
    # Known clients: for new ones, the gap before their rows in the index would be locked, too.
    await app.push((1, "add", None), client="x")
    await app.push((1, "add", None), client="y")
    own(app, both)
    answers = await asyncio.gather(
        app.push((2, "cross", [1, 2]), client="x"), app.push((2, "cross", [2, 1]), client="y")
    )
    assert list(answers) == [[{}], [{}]]
    assert app.counters() == [(1, 4), (2, 2)]
    # At least one run is repeated; it may be the victim once more.
    assert len(runs) >= 3


async def test_clients_whose_ids_differ_by_case_are_two(app: App) -> None:
    await app.push((1, "set", {"id": 1, "n": 1}), client="a")
    assert await app.push((1, "set", {"id": 2, "n": 2}), client="A") == [{}]
    assert sorted(app.last_id()) == [("g", "A", 1), ("g", "a", 1)]


async def test_a_value_that_does_not_fit_refuses_the_mutation(app: App) -> None:
    (result,) = await app.push((1, "set", {"id": 1, "n": 2**40}))
    assert result["error"] == "app"
    assert app.counters() == []


@pytest.mark.parametrize("url", ["postgres://localhost/app", "mysql://localhost/app?charset=latin1"])
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the URL of the store"):
        MysqlStore(url, SCHEMA)


def test_which_errors_may_pass() -> None:
    store = MysqlStore("mysql://localhost/app", SCHEMA)
    assert store.is_transient(pymysql.err.OperationalError(1213, "Deadlock found"))
    assert not store.is_transient(pymysql.err.OperationalError(1045, "Access denied"))
    assert not store.is_transient(pymysql.err.IntegrityError(1062, "Duplicate entry"))
