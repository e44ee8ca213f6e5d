"""What happens to a group over time: clients deleted, credentials renewed, queries expired, groups forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from protocol.sync.ast import Query
from protocol.sync.errors import ErrorKind, SyncError, transform_failed
from protocol.sync.messages import (
    AnalyzeOptions,
    InspectAnalyzeQuery,
    InspectMetrics,
    InspectQueries,
    InspectVersion,
)
from reference_cache.credentials import Credentials
from reference_cache.view_syncer.api import NamedQueryCall, QueryFailure
from tests.reference_cache.view_syncer.clients import Client, dropped, named
from tests.reference_cache.view_syncer.conftest import QUERIES, Setup, issue


async def two_clients(setup: Setup) -> tuple[Client, Client]:
    await setup.commit(("put", "issue", issue("1")), ("put", "issue", issue("2", "bob")))
    first, second = Client("c1", "g1"), Client("c2", "g1")
    await first.connect(setup.syncer, [named("anns")])
    await second.connect(setup.syncer, [named("bobs", ttl=0)])
    return first, second


async def test_deleted_clients_are_acknowledged_and_their_wishes_end(setup: Setup) -> None:
    first, second = await two_clients(setup)
    await second.close()
    assert first.connection is not None
    await first.connection.delete_clients(["c2", "unknown"])
    assert [body for tag, body in first.messages if tag == "deleteClients"] == [{"clientIDs": ["c2", "unknown"]}]
    assert first.desired == {"c1": {"anns"}, "c2": set()}
    assert first.got == {"anns"}
    with pytest.raises(SyncError):
        await first.connection.delete_clients(["c1"])


async def test_clients_that_are_not_among_the_active_are_deleted(setup: Setup) -> None:
    first, second = await two_clients(setup)
    await second.close()
    await first.close()
    await first.connect(setup.syncer, activeClients=["c1"])
    assert first.desired == {"c1": {"anns"}, "c2": set()}
    assert first.connection is not None
    assert first.connection.deleted_clients == ["c2"]


async def test_a_newer_connection_of_a_client_replaces_the_older(setup: Setup) -> None:
    old, new = Client("c1", "g1"), Client("c1", "g1")
    await old.connect(setup.syncer, [named("all")])
    told = len(old.messages)
    await new.connect(setup.syncer, [named("all")])
    await old.close()
    await setup.commit(("put", "issue", issue("1")))
    assert new.rows == setup.world.everything()
    assert len(old.messages) == told


async def test_a_connection_that_ended_while_it_was_checked_does_not_displace_the_next(setup: Setup) -> None:
    """The application answers for the first connection of a client when the client has long come back."""
    asked, answered = asyncio.Event(), asyncio.Event()

    async def slow(credentials: Any) -> bool:
        setup.app.validate = quick  # type: ignore[method-assign]
        asked.set()
        await answered.wait()
        return False

    quick, setup.app.validate = setup.app.validate, slow  # type: ignore[method-assign]
    old, new = Client("c1", "g1"), Client("c1", "g1")
    late = asyncio.create_task(old.connect(setup.syncer, [named("anns")]))
    await asked.wait()
    old.is_open = False
    await new.connect(setup.syncer, [named("all")])
    answered.set()
    with pytest.raises(SyncError, match="disconnected while"):
        await late
    await setup.commit(("put", "issue", issue("1")))
    assert new.rows == setup.world.everything()
    assert new.desired == {"c1": {"all"}}


async def test_new_credentials_may_change_what_a_query_means(setup: Setup) -> None:
    first, second = await two_clients(setup)
    assert first.connection is not None
    pokes = len(first.pokes)
    await first.connection.update_auth(Credentials(token="same meaning"))
    assert len(first.pokes) == pokes
    setup.app.queries["anns"] = QUERIES["bobs"]
    await first.connection.update_auth(Credentials(token="another meaning"))
    assert [patch["op"] for patch in first.row_patches(pokes)] == ["del"]
    assert first.rows == second.rows == {("issue", '{"id":"2"}'): issue("2", "bob")}


async def test_a_failed_transformation_fails_its_requester_and_the_group_continues(setup: Setup) -> None:
    first, _ = await two_clients(setup)
    setup.app.failure = transform_failed("http", "down", ["all"], status=500)
    third = Client("c3", "g1")
    with pytest.raises(SyncError) as caught:
        await third.connect(setup.syncer, [named("all")])
    assert caught.value.kind == ErrorKind.TRANSFORM_FAILED
    setup.app.failure = None
    await setup.commit(("put", "issue", issue("3")))
    assert len(first.rows) == 3
    assert first.cookie is not None
    third.connection = None
    await third.connect(setup.syncer)
    assert third.got == {"anns", "bobs", "all"}


def slow_application(setup: Setup) -> tuple[asyncio.Event, asyncio.Event]:
    """Have the application take its time: it was asked, and it may answer."""
    asked, answered = asyncio.Event(), asyncio.Event()
    transform = setup.app.transform

    async def slow(credentials: Any, queries: Sequence[NamedQueryCall]) -> dict[str, Query | QueryFailure]:
        asked.set()
        await answered.wait()
        return await transform(credentials, queries)

    setup.app.transform = slow  # type: ignore[method-assign]
    return asked, answered


@pytest.mark.parametrize("is_changed_before", [False, True])
async def test_a_mutation_confirmed_while_a_client_returns_hides_nothing(setup: Setup, is_changed_before: bool) -> None:
    await setup.commit(("put", "issue", issue("1")))
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    await setup.restart()
    if is_changed_before:
        await setup.commit(("put", "issue", issue("2")))
    asked, answered = slow_application(setup)
    connecting = asyncio.ensure_future(client.connect(setup.syncer))
    await asked.wait()
    mine = {"clientGroupID": "g1", "clientID": "c1", "lastMutationID": 1, "userID": None}
    await setup.commit(("put", "issue", issue("3")), ("put", "zero_0.clients", mine))
    answered.set()
    await connecting
    assert client.rows == setup.world.everything()
    assert client.last_mutation_ids == {"c1": 1}


async def test_a_replica_synced_from_scratch_refuses_a_client_that_is_connecting(setup: Setup) -> None:
    asked, answered = slow_application(setup)
    client = Client("c1", "g1")
    connecting = asyncio.ensure_future(client.connect(setup.syncer, [named("all")]))
    await asked.wait()
    setup.world.start_over()
    setup.syncer.notify()
    await setup.syncer.reached(setup.world.version)
    answered.set()
    with pytest.raises(SyncError) as caught:
        await connecting
    assert caught.value.kind == ErrorKind.REHOME
    assert setup.syncer.status().queries == 0


async def test_a_query_on_a_table_that_is_not_there_is_an_internal_error(setup: Setup) -> None:
    setup.app.queries["bad"] = {"table": "nowhere"}
    client = Client("c1", "g1")
    with pytest.raises(SyncError) as caught:
        await client.connect(setup.syncer, [named("bad")])
    assert caught.value.kind == ErrorKind.INTERNAL
    assert "nowhere" in caught.value.message


async def test_a_query_expires_by_itself_when_its_time_is_over(setup: Setup) -> None:
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all", ttl=1000), named("anns")])
    await client.change(dropped("all"))
    assert client.got == {"all", "anns"}
    await client.close()
    setup.time += 5  # the clock stands still while nobody is connected
    await client.connect(setup.syncer)
    assert client.got == {"all", "anns"}
    setup.time += 5
    await setup.evict_expired()
    assert client.got == {"anns"}


async def test_expiry_needs_no_call(setup: Setup) -> None:
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all", ttl=1)])
    setup.time += 1
    await client.change(dropped("all"))
    setup.time += 1
    await client.until(lambda: not client.got)
    assert client.rows == {}


async def test_a_put_of_what_is_wished_for_already_is_no_news(setup: Setup) -> None:
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all", ttl=5000)])
    pokes = len(client.pokes)
    await client.change(named("all", ttl=5000))
    await client.change(named("all", ttl=10))
    assert len(client.pokes) == pokes
    await client.change(named("all", ttl=6000))
    assert len(client.pokes) == pokes + 1


async def test_a_query_desired_again_before_its_ttl_is_over_keeps_running(setup: Setup) -> None:
    await setup.commit(("put", "issue", issue("1")))
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    pokes = len(client.pokes)
    await client.change(dropped("all"))
    await client.change(named("all"))
    assert client.row_patches(pokes) == []
    assert client.desired == {"c1": {"all"}}


async def test_unused_groups_are_deleted(setup: Setup) -> None:
    first, second = await two_clients(setup)
    await first.close()
    await second.close()
    await setup.syncer.housekeeping.stop_abandoned()
    assert setup.syncer.status().queries == 0
    assert setup.syncer.housekeeping.purge() == 0
    setup.forget_after(-1.0)
    await setup.restart()
    assert setup.syncer.housekeeping.purge() == 1
    with pytest.raises(SyncError) as caught:
        await first.connect(setup.syncer)
    assert caught.value.kind == ErrorKind.CLIENT_NOT_FOUND


async def test_old_tombstones_are_deleted_and_clients_that_needed_them_start_over(setup: Setup) -> None:
    await setup.commit(("put", "issue", issue("1")), ("put", "issue", issue("2", "bob")))
    here, away, idle = Client("c1", "g1"), Client("c2", "g1"), Client("c3", "g3")
    await here.connect(setup.syncer, [named("anns")])
    await away.connect(setup.syncer)
    await idle.connect(setup.syncer, [named("bobs")])
    await away.close()
    await setup.commit(("del", "issue", issue("1")))
    await setup.commit(("put", "issue", issue("3")))
    setup.forget_after(-1.0)
    await setup.restart()
    for client in (here, idle):
        await client.connect(setup.syncer)
    setup.syncer.housekeeping.purge()
    with pytest.raises(SyncError) as caught:
        await away.connect(setup.syncer)
    assert caught.value.kind == ErrorKind.CLIENT_NOT_FOUND
    for client in (here, idle):
        await client.close()
        await client.connect(setup.syncer)
    assert here.rows == {("issue", '{"id":"3"}'): issue("3")}
    assert idle.rows == {("issue", '{"id":"2"}'): issue("2", "bob")}


async def test_the_inspector_shows_queries_and_what_they_cost(setup: Setup) -> None:
    first, _ = await two_clients(setup)
    assert first.connection is not None
    mine: Any = await first.connection.inspect(InspectQueries(op="queries", id="1", client_id="c1"))
    assert [(each["queryID"], each["name"], each["got"], each["rowCount"]) for each in mine] == [
        ("anns", "anns", True, 1)
    ]
    assert mine[0]["ast"]["table"] == "issue"
    everybody: Any = await first.connection.inspect(InspectQueries(op="queries", id="2"))
    assert len(everybody) == 2
    metrics: Any = await first.connection.inspect(InspectMetrics(op="metrics", id="3"))
    assert metrics["query-materialization-server"][0] == 1000
    assert await first.connection.inspect(InspectVersion(op="version", id="4"))


async def test_the_inspector_evaluates_a_named_query_and_tells_how(setup: Setup) -> None:
    first, _ = await two_clients(setup)
    assert first.connection is not None
    question = InspectAnalyzeQuery(op="analyze-query", id="1", name="all", args=[])
    found: Any = await first.connection.inspect(question)
    assert found["syncedRowCount"] == 2
    assert found["sqlitePlans"]["operators"]
    assert [row["id"] for row in found["syncedRows"]["issue"]] == ["1", "2"]
    assert found["readRowCount"] == 2
    assert "readRows" not in found
    vended = question.model_copy(update={"options": AnalyzeOptions(vended_rows=True, synced_rows=False)})
    found = await first.connection.inspect(vended)
    assert "syncedRows" not in found
    assert {shape: len(rows) for shape, rows in found["readRows"]["issue"].items()} == found["readRowCountsByQuery"][
        "issue"
    ]
    with pytest.raises(ValueError, match="unheard"):
        await first.connection.inspect(question.model_copy(update={"name": "unheard"}))


async def test_a_caller_that_gives_up_leaves_no_half_admitted_client(setup: Setup) -> None:
    client = Client("c1", "g1")
    connecting = asyncio.ensure_future(client.connect(setup.syncer, [named("all")]))
    await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    other = Client("c2", "g1")
    await other.connect(setup.syncer)
    assert setup.syncer.status().clients == 1
