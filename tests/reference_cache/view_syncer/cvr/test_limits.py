"""What one group may have recorded, and that it cannot use up the room of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.view_syncer.cvr.limits import GroupLimits
from reference_cache.view_syncer.pipelines.slow_start import Starting
from tests.reference_cache.view_syncer.clients import Client, dropped, named
from tests.reference_cache.view_syncer.conftest import Setup, issue

ANN = {"type": "simple", "op": "=", "left": {"type": "column", "name": "owner"}}


def owned_by(owner: str, ttl: int = 0) -> dict[str, Any]:
    """An ad hoc query that finds nothing, as many of them as there are owners."""
    where = {**ANN, "right": {"type": "literal", "value": owner}}
    return {"op": "put", "hash": f"by-{owner[-8:]}", "ttl": ttl, "ast": {"table": "issue", "where": where}}


async def limited(setup: Setup, **limits: int) -> None:
    records_bytes = limits.pop("records_bytes", setup.options.records_bytes)
    setup.options = replace(setup.options, limits=GroupLimits(**limits), records_bytes=records_bytes)
    await setup.restart()


def sizes(setup: Setup) -> dict[str, int]:
    connection = setup.syncer._services.file.connection
    tables = ("group_queries", "desires", "memberships", "clients", "groups")
    return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


async def test_a_group_that_wants_too_many_queries_is_refused_and_keeps_those_it_has(setup: Setup) -> None:
    await limited(setup, queries=3)
    await setup.commit(("put", "issue", issue("1")))
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("anns"), named("bobs")])
    with pytest.raises(SyncError, match="CHANGESOURCE_CACHE_GROUP_QUERIES") as refused:
        await client.change(named("open"), named("top"))
    assert refused.value.kind is ErrorKind.INTERNAL
    assert sizes(setup)["group_queries"] == 2
    await client.change(named("open"))
    await setup.commit(("put", "issue", issue("2")))
    assert client.got == {"anns", "bobs", "open"}
    assert len(client.rows) == 2


async def test_a_groups_definitions_are_limited_in_bytes_and_free_again_when_queries_end(setup: Setup) -> None:
    await limited(setup, query_bytes=5_000)
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [owned_by("x" * 3_000)])
    with pytest.raises(SyncError, match="CHANGESOURCE_CACHE_GROUP_QUERY_BYTES"):
        await client.change(owned_by("y" * 3_000))
    await client.change(dropped(owned_by("x" * 3_000)["hash"]))
    await client.change(owned_by("y" * 1_500))
    await setup.restart()
    with pytest.raises(SyncError, match="CHANGESOURCE_CACHE_GROUP_QUERY_BYTES"):
        await client.connect(setup.syncer, [owned_by("z" * 4_000)])


async def test_a_group_may_not_have_any_number_of_clients(setup: Setup) -> None:
    await limited(setup, clients=2)
    for client_id in ("c1", "c2"):
        await Client(client_id, "g1").connect(setup.syncer)
    with pytest.raises(SyncError, match="CHANGESOURCE_CACHE_GROUP_CLIENTS"):
        await Client("c3", "g1").connect(setup.syncer)
    await Client("c2", "g1").connect(setup.syncer)
    await Client("c3", "g2").connect(setup.syncer)


async def test_what_has_ended_is_bounded_and_a_client_that_missed_too_much_of_it_starts_over(setup: Setup) -> None:
    await limited(setup, ended=40)
    await setup.commit(("put", "issue", issue("1")))
    away, busy = Client("away", "g1"), Client("busy", "g1")
    await away.connect(setup.syncer, [named("anns")])
    await busy.connect(setup.syncer, [named("anns")])
    await away.close()
    most = 0
    for number in range(80):
        await busy.change(owned_by(str(number)))
        await busy.change(dropped(f"by-{number}"))
        await setup.evict_expired()
        most = max(most, sizes(setup)["group_queries"] + sizes(setup)["desires"])
    assert most < 100
    assert busy.got == {"anns"}
    with pytest.raises(SyncError) as refused:
        await away.connect(setup.syncer)
    assert refused.value.kind is ErrorKind.CLIENT_NOT_FOUND
    await busy.close()
    await setup.restart()
    await busy.connect(setup.syncer)
    await setup.commit(("put", "issue", issue("2")))
    assert len(busy.rows) == 2
    with pytest.raises(SyncError):
        await away.connect(setup.syncer)


async def test_ended_desires_of_clients_that_are_gone_are_bounded_while_a_query_goes_on(setup: Setup) -> None:
    await limited(setup, ended=40)
    await setup.commit(("put", "issue", issue("1")))
    keeper = Client("keeper", "g1")
    await keeper.connect(setup.syncer, [named("anns")])
    for number in range(80):
        tab = Client(f"tab{number}", "g1")
        await tab.connect(setup.syncer, [named("anns")])
        await tab.close()
        assert keeper.connection is not None
        await keeper.connection.delete_clients([tab.client_id])
        await keeper.change()
    assert sizes(setup)["desires"] < 60
    assert keeper.got == {"anns"}
    await setup.commit(("put", "issue", issue("2")))
    assert len(keeper.rows) == 2


async def test_when_the_records_take_too_much_commits_go_on_and_unused_groups_make_room(setup: Setup) -> None:
    await limited(setup, records_bytes=1_500_000)
    await setup.commit(("put", "issue", issue("1")))
    healthy = Client("healthy", "g0")
    await healthy.connect(setup.syncer, [named("anns")])
    refused = []
    for number in range(100):
        try:
            intruder = Client("c", f"g{number + 1}")
            await intruder.connect(setup.syncer, [owned_by("x" * 60_000 + str(number))])
            await intruder.close()
        except SyncError as error:
            refused.append(error.kind)
        setup.syncer._services.file.measure()
    assert len(refused) > 50
    assert set(refused) == {ErrorKind.SERVER_OVERLOADED}
    await setup.commit(("put", "issue", issue("2")))
    assert len(healthy.rows) == 2
    await setup.syncer.housekeeping.stop_abandoned()
    while not setup.syncer._services.file.measure():
        assert setup.syncer.housekeeping.make_room()
        setup.syncer._services.file.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    late = Client("late", "g-late")
    await late.connect(setup.syncer, [named("anns")])
    assert len(late.rows) == 2
    await healthy.change(named("open"))
    assert healthy.got == {"anns", "open"}


async def test_making_room_keeps_the_records_of_a_query_that_is_being_hydrated_aside(setup: Setup) -> None:
    pipelines, connection = setup.syncer._services.pipelines, setup.syncer._services.file.connection
    connection.execute("INSERT INTO queries VALUES (77, 'slow', 0, '', '', '')")
    count = "SELECT count(*) FROM queries WHERE id = 77"
    starting = pipelines._slow._starting["slow"] = Starting()
    starting.recorded_id = 77
    setup.syncer.housekeeping.make_room()
    assert connection.execute(count).fetchone() == (1,)
    del pipelines._slow._starting["slow"]
    setup.syncer.housekeeping.make_room()
    assert connection.execute(count).fetchone() == (0,)


async def test_commits_go_on_where_the_disk_of_the_records_is_full(setup: Setup) -> None:
    await setup.commit(*(("put", "issue", issue(str(number))) for number in range(50)))
    client = Client("c", "g1")
    await client.connect(setup.syncer, [named("anns")])
    file = setup.syncer._services.file
    # What SQLite says of a full disk, without one: no page may be added.
    file.connection.execute(f"PRAGMA max_page_count = {file.connection.execute('PRAGMA page_count').fetchone()[0]}")
    more = [("put", "issue", issue(f"{number:0300}")) for number in range(50, 500)]
    await setup.commit(*more)
    assert file.is_in_memory
    assert not setup.options.cvr_file.exists(), "a later process must not take its cookies for its own"
    late = Client("late", "g2")
    await late.connect(setup.syncer, [named("anns")])
    assert len(late.rows) == 500
    await setup.commit(("put", "issue", issue("500")))
    assert len(late.rows) == 501
    with pytest.raises(SyncError) as refused:
        await client.connect(setup.syncer, [named("anns")])
    assert refused.value.kind is ErrorKind.CLIENT_NOT_FOUND
