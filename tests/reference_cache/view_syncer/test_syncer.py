"""Clients connect, desire queries, and are sent exactly the changes of those."""

from __future__ import annotations

import pytest

from protocol.sync.errors import ErrorKind, SyncError
from tests.reference_cache.view_syncer.clients import Client, dropped, named
from tests.reference_cache.view_syncer.conftest import Setup, issue


async def test_a_new_client_learns_its_wishes_first_and_then_its_rows(setup: Setup) -> None:
    await setup.commit(("put", "issue", issue("1")), ("put", "issue", issue("2", "bob")))
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("anns")])
    assert [(poke["base"], poke["cookie"]) for poke in client.pokes] == [(None, "00:01"), ("00:01", "02")]
    assert client.desired == {"c1": {"anns"}}
    assert client.got == {"anns"}
    assert client.rows == {("issue", '{"id":"1"}'): issue("1")}


async def test_a_commit_reaches_those_it_concerns_and_nobody_else(setup: Setup) -> None:
    ann, bob = Client("c1", "g1"), Client("c2", "g2")
    await ann.connect(setup.syncer, [named("anns")])
    await bob.connect(setup.syncer, [named("bobs")])
    before = len(bob.pokes)
    await setup.commit(("put", "issue", issue("1")))
    assert list(ann.rows.values()) == [issue("1")]
    assert ann.cookie == "02"
    assert len(bob.pokes) == before
    await setup.commit(("put", "issue", issue("1", "bob")))
    assert (ann.rows, list(bob.rows.values())) == ({}, [issue("1", "bob")])


async def test_groups_with_the_same_queries_get_the_same_frames(setup: Setup) -> None:
    clients = [Client(f"c{number}", f"g{number}") for number in range(3)]
    for client in clients:
        await client.connect(setup.syncer, [named("all")])
    await setup.commit(("put", "issue", issue("1")))
    assert setup.syncer.status().queries == 1
    assert {client.cookie for client in clients} == {"02"}
    assert all(list(client.rows.values()) == [issue("1")] for client in clients)


async def test_a_returning_client_gets_exactly_what_it_missed(setup: Setup) -> None:
    await setup.commit(*(("put", "issue", issue(str(number))) for number in range(5)))
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    await client.close()
    await setup.commit(("put", "issue", issue("1", "bob")), ("del", "issue", issue("2")))
    seen = len(client.pokes)
    await client.connect(setup.syncer)
    patches = client.row_patches(seen)
    assert sorted(patch["op"] for patch in patches) == ["del", "put"]
    assert client.rows == setup.world.everything()


async def test_a_returning_client_gets_exactly_what_it_missed_across_a_restart(setup: Setup) -> None:
    await setup.commit(*(("put", "issue", issue(str(number))) for number in range(5)))
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    await setup.syncer.stop()
    setup.world.commit(("put", "issue", issue("1", "bob")), ("del", "issue", issue("2")))
    await setup.start_again()
    seen = len(client.pokes)
    await client.connect(setup.syncer)
    assert sorted(patch["op"] for patch in client.row_patches(seen)) == ["del", "put"]
    assert client.rows == setup.world.everything()


async def test_a_client_that_missed_nothing_gets_an_empty_poke(setup: Setup) -> None:
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    await setup.commit(("put", "issue", issue("1")))
    for _ in range(2):
        await client.close()
        seen = len(client.pokes)
        await client.connect(setup.syncer)
        assert client.pokes[seen:] == [{"base": "02", "cookie": "02", "parts": []}]
        await setup.restart()


async def test_a_second_client_of_a_group_gets_everything_in_one_poke(setup: Setup) -> None:
    await setup.commit(("put", "issue", issue("1")))
    first, second = Client("c1", "g1"), Client("c2", "g1")
    await first.connect(setup.syncer, [named("all")])
    await second.connect(setup.syncer, [named("anns")])
    assert first.rows == second.rows == setup.world.everything()
    assert first.got == second.got == {"all", "anns"}
    assert first.desired == second.desired == {"c1": {"all"}, "c2": {"anns"}}
    assert first.cookie == second.cookie
    assert len(second.pokes) == 1


async def test_a_dropped_query_runs_until_its_ttl_is_over(setup: Setup) -> None:
    await setup.commit(("put", "issue", issue("1")))
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all"), named("open", ttl=0)])
    await client.change(dropped("all"))
    assert client.got == {"all", "open"}
    assert client.desired == {"c1": {"open"}}
    await client.change(dropped("open"))
    assert client.got == {"all"}
    assert client.rows == setup.world.everything()


async def test_clearing_drops_queries_and_their_rows_at_once(setup: Setup) -> None:
    await setup.commit(("put", "issue", issue("1")))
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    await client.change({"op": "clear"})
    assert (client.rows, client.got, client.desired) == ({}, set(), {"c1": set()})


async def test_a_refused_query_is_reported_and_the_others_run(setup: Setup) -> None:
    await setup.commit(("put", "issue", issue("1")))
    setup.app.refused["bad"] = "no such query"
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all"), named("bad")])
    told = [body for tag, body in client.messages if tag == "transformError"]
    assert told == [[{"error": "app", "id": "bad", "name": "bad", "message": "no such query"}]]
    assert client.got == {"all"}
    assert client.rows == setup.world.everything()


async def test_a_refused_query_is_reported_to_a_client_that_is_behind_too(setup: Setup) -> None:
    first, second = Client("c1", "g1"), Client("c2", "g1")
    await first.connect(setup.syncer, [named("all")])
    setup.app.refused["bad"] = "no such query"
    await second.connect(setup.syncer, [named("bad")])
    assert [tag for tag, _ in second.messages if tag == "transformError"] == ["transformError"]
    assert [tag for tag, _ in first.messages if tag == "transformError"] == []


async def test_a_poke_of_many_rows_comes_in_parts_and_the_status_counts_them(setup: Setup) -> None:
    await setup.commit(*(("put", "issue", issue(str(number))) for number in range(250)))
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    assert [len(part["rowsPatch"]) for part in client.pokes[-1]["parts"]] == [100, 100, 50]
    status = setup.syncer.status()
    assert (status.version, status.groups, status.clients, status.queries, status.rows) == ("02", 1, 1, 1, 250)
    assert status.extra["longestStepMs"] >= status.extra["lastStepMs"] > 0


async def test_a_value_no_client_can_hold_fails_its_readers_and_nobody_else(setup: Setup) -> None:
    mine, yours = Client("c1", "g1"), Client("c2", "g2")
    await mine.connect(setup.syncer, [named("all")])
    await yours.connect(setup.syncer, [named("comments")])
    setup.world.number += 1
    writer = setup.world.writer
    writer.begin(setup.world.version, "p")
    writer.rows("issue").insert(issue("1"), ("id",))
    writer.write_pending()
    writer.connection.execute("UPDATE issue SET rank = 9007199254740993")
    writer.connection.execute("UPDATE issue SET extra = 'this is not JSON'")
    writer.commit()
    writer.flush()
    setup.syncer.notify()
    await setup.syncer.reached(setup.world.version)
    assert [error.kind for error in mine.errors] == [ErrorKind.INTERNAL]
    await setup.commit(("put", "comment", {"id": "1", "issue": "1", "text": "still here"}))
    assert (yours.errors, len(yours.rows)) == ([], 1)


async def test_last_mutation_ids_come_with_the_rows(setup: Setup) -> None:
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    mine = {"clientGroupID": "g1", "clientID": "c1", "lastMutationID": 1, "userID": None}
    await setup.commit(("put", "issue", issue("1")), ("put", "zero_0.clients", mine))
    assert client.last_mutation_ids == {"c1": 1}
    assert len(client.pokes[-1]["parts"]) == 1
    result = {"clientGroupID": "g1", "clientID": "c1", "mutationID": 1, "mutation": None, "result": {"error": "app"}}
    await setup.commit(("put", "zero_0.mutations", result))
    assert client.results == {("c1", 1): {"error": "app"}}
    await client.close()
    await setup.commit(("del", "zero_0.mutations", result), ("put", "zero_0.clients", {**mine, "lastMutationID": 2}))
    await client.connect(setup.syncer)
    assert (client.results, client.last_mutation_ids) == ({}, {"c1": 2})


@pytest.mark.parametrize(
    ("cookie", "kind"),
    [("02", ErrorKind.CLIENT_NOT_FOUND), ("nonsense", ErrorKind.INTERNAL)],
)
async def test_a_cookie_of_an_unknown_group_is_refused(setup: Setup, cookie: str, kind: ErrorKind) -> None:
    client = Client("c1", "g1")
    client.cookie = cookie
    with pytest.raises(SyncError) as caught:
        await client.connect(setup.syncer)
    assert caught.value.kind == kind


async def test_a_cookie_from_the_future_is_refused(setup: Setup) -> None:
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    await client.close()
    client.cookie = "0z"
    with pytest.raises(SyncError) as caught:
        await client.connect(setup.syncer)
    assert caught.value.kind == ErrorKind.INVALID_BASE_COOKIE


async def test_a_group_belongs_to_one_user(setup: Setup) -> None:
    ann, eve = Client("c1", "g1", user_id="ann"), Client("c2", "g1", user_id="eve")
    await ann.connect(setup.syncer, [named("all")])
    with pytest.raises(SyncError) as caught:
        await eve.connect(setup.syncer)
    assert caught.value.kind == ErrorKind.UNAUTHORIZED
    await setup.commit(("put", "issue", issue("1")))
    assert ann.rows == setup.world.everything()
    assert eve.messages == []


async def test_rows_that_stand_for_an_exists_may_be_others_after_a_restart(setup: Setup) -> None:
    """Which labels prove that there is one is a matter of history; clients must follow the new choice."""
    await setup.commit(
        ("put", "issue", issue("1")), *(("put", "label", {"issue": "1", "name": name}) for name in "wxyz")
    )
    client, away = Client("c1", "g1"), Client("c2", "g2")
    for each in (client, away):
        await each.connect(setup.syncer, [named("labelled")])
    await setup.commit(*(("put", "label", {"issue": "1", "name": name}) for name in "abcdefgh"))
    await setup.commit(("put", "issue", issue("1", "bob")))
    before = set(client.rows)
    await setup.restart()
    await client.connect(setup.syncer)
    assert set(client.rows) != before, "the choice has not changed, so this proves nothing"
    await away.connect(setup.syncer)
    assert client.rows == away.rows
    for name in "abcdefghwxyz":
        await setup.commit(("del", "label", {"issue": "1", "name": name}))
        everything = setup.world.everything()
        assert client.rows.items() <= everything.items()
        assert client.rows == away.rows
    assert client.rows == {}


async def test_clients_without_the_new_choice_are_sent_it_at_the_same_data_version(setup: Setup) -> None:
    await setup.commit(
        ("put", "issue", issue("1")), *(("put", "label", {"issue": "1", "name": name}) for name in "wxyz")
    )
    one, two = Client("c1", "g1"), Client("c2", "g1")
    await one.connect(setup.syncer, [named("labelled")])
    await two.connect(setup.syncer)
    await setup.commit(*(("put", "label", {"issue": "1", "name": name}) for name in "abcdefgh"))
    await setup.commit(("put", "issue", issue("1", "bob")))
    await setup.restart()
    other = Client("c3", "g3")
    await other.connect(setup.syncer, [named("labelled")])
    for client in (one, two):
        await client.connect(setup.syncer)
        assert client.rows == other.rows
