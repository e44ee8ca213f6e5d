"""Rows, mutations and pokes without a network: what is shown is the server's rows with the open mutations on top."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from protocol.sync.downstream import PokePart
from reference_cache.client.errors import ClientError
from reference_cache.client.local.state import LocalState
from reference_cache.client.local.transaction import Transaction
from reference_cache.client.pokes import Poke, PokeError
from reference_cache.client.sqlite_store import SqliteLocalStore
from reference_cache.client.store import LocalStore, MemoryLocalStore
from reference_cache.zql.query.builder import Queries
from reference_cache.zql.schema import Schema, schema, table

ITEMS = schema([table("item", {"id": "string", "count": "number", "note": "json?"})], {})
ALL = Queries(ITEMS).table("item")


def put(tx: Transaction, args: Any) -> None:
    tx.upsert("item", args)


def add(tx: Transaction, args: Any) -> int:
    """Depends on what is there, so it comes out differently on top of other rows."""
    row = tx.get("item", {"id": args["id"]})
    count: int = (row["count"] if row else 0) + args["by"]
    tx.upsert("item", {"id": args["id"], "count": count})
    return count


def drop(tx: Transaction, args: Any) -> None:
    tx.delete("item", args)


def double_all(tx: Transaction, args: Any) -> None:
    rows = tx.run(ALL.where("count", ">", 0))
    assert isinstance(rows, list)
    for row in rows:
        tx.update("item", {"id": row["id"], "count": row["count"] * 2})


def fail_on_rebase(tx: Transaction, args: Any) -> None:
    tx.upsert("item", args)
    if tx.reason == "rebase":
        raise ValueError("not now")


MUTATORS = {"put": put, "add": add, "drop": drop, "double": double_all, "fail": fail_on_rebase}


class World:
    """A state, a view of everything in it, and a server that pokes it."""

    def __init__(self, store: LocalStore | None = None, items: Schema = ITEMS) -> None:
        self.state = LocalState(items, MUTATORS, store or MemoryLocalStore())
        self.view = self.state.tables.engine.materialize(ALL.ast, ALL.format)

    def mutate(self, name: str, **args: Any) -> Any:
        return self.state.mutate(name, args, 7)[1]

    def poke(self, *rows: dict[str, Any], last: int | None = None, cookie: str | None = None) -> Any:
        base = self.state.record.cookie
        patches = [{"tableName": "item", **row} for row in rows]
        fields: dict[str, Any] = {"pokeID": "p", "rowsPatch": patches}
        if last is not None:
            fields["lastMutationIDChanges"] = {self.state.record.identity.client_id: last}
        target = cookie or f"{int(base or '0') + 1:04}"
        return self.state.apply(Poke(base, target, (PokePart.model_validate(fields),)))

    @property
    def counts(self) -> dict[str, int]:
        rows = self.view.result
        assert isinstance(rows, list)
        return {row["id"]: row["count"] for row in rows}


def row(id: str, count: int) -> dict[str, Any]:
    return {"op": "put", "value": {"id": id, "count": count, "note": None, "unknown": 1}}


def gone(id: str) -> dict[str, Any]:
    return {"op": "del", "id": {"id": id}}


def test_a_mutation_shows_at_once_and_its_mutator_s_answer_is_given() -> None:
    world = World()
    assert world.mutate("add", id="a", by=2) == 2
    assert world.mutate("add", id="a", by=3) == 5
    assert world.counts == {"a": 5}
    assert [mutation.id for mutation in world.state.record.queue] == [1, 2]


def test_open_mutations_are_done_again_on_top_of_new_rows() -> None:
    world = World()
    world.mutate("add", id="a", by=1)
    world.poke(row("a", 10), row("b", 1))
    assert world.counts == {"a": 11, "b": 1}
    world.poke(row("a", 20))
    assert world.counts == {"a": 21, "b": 1}


def test_a_confirmed_mutation_is_the_server_s_and_no_longer_ours() -> None:
    world = World()
    world.poke(row("a", 10))
    world.mutate("add", id="a", by=1)
    world.mutate("add", id="a", by=5)
    applied = world.poke(row("a", 11), last=1)
    assert [mutation.id for mutation in applied.confirmed] == [1]
    assert world.counts == {"a": 16}
    world.poke(row("a", 16), last=2)
    assert world.counts == {"a": 16}
    assert world.state.record.queue == []


def test_a_refused_mutation_leaves_no_trace() -> None:
    world = World()
    world.poke(row("a", 10))
    world.mutate("drop", id="a")
    world.mutate("put", id="b", count=1)
    assert world.counts == {"b": 1}
    world.poke(last=2)
    assert world.counts == {"a": 10}


def test_a_row_deleted_by_the_server_under_a_mutation_comes_back_only_by_the_mutation() -> None:
    world = World()
    world.poke(row("a", 10))
    world.mutate("add", id="a", by=1)
    world.poke(gone("a"))
    assert world.counts == {"a": 1}
    world.poke(last=1)
    assert world.counts == {}


def test_a_mutator_reads_queries_with_everything_written_before_it() -> None:
    world = World()
    world.poke(row("a", 1), row("b", 2), row("z", 0))
    world.mutate("add", id="c", by=4)
    world.mutate("drop", id="b")
    world.mutate("double")
    assert world.counts == {"a": 2, "c": 8, "z": 0}
    world.poke(row("d", 5))
    assert world.counts == {"a": 2, "c": 8, "d": 10, "z": 0}


def test_a_mutator_that_fails_is_not_queued_and_changes_nothing() -> None:
    world = World()
    with pytest.raises(ClientError, match="column 'count' holds number"):
        world.mutate("put", id="a", count="many")
    with pytest.raises(ClientError, match="did you mean 'count'"):
        world.mutate("put", id="a", cuont=1)
    with pytest.raises(ClientError, match="the key needs id"):
        world.mutate("put", count=1)
    with pytest.raises(ClientError, match="did you mean 'double'"):
        world.mutate("duble")
    assert world.counts == {}
    assert world.state.record.queue == []


def test_a_mutator_that_fails_when_done_again_is_left_to_the_server() -> None:
    world = World()
    world.mutate("fail", id="a", count=1)
    world.mutate("add", id="b", by=1)
    assert world.counts == {"a": 1, "b": 1}
    world.poke(row("c", 1))
    assert world.counts == {"b": 1, "c": 1}
    assert [mutation.name for mutation in world.state.record.queue] == ["fail", "add"]


def test_arguments_are_what_json_makes_of_them() -> None:
    world = World()
    world.mutate("put", id="a", count=1, note=(1, 2))
    assert world.state.record.queue[0].args["note"] == [1, 2]
    with pytest.raises(ClientError, match="bad-arguments"):
        world.mutate("put", id="b", count=1, note={1, 2})


def test_confirmations_do_not_go_back() -> None:
    world = World()
    world.poke(last=3)
    with pytest.raises(PokeError):
        world.poke(row("a", 1), last=2)
    assert world.counts == {}
    assert world.mutate("add", id="a", by=1) == 1
    assert world.state.record.queue[0].id == 4


def test_a_poke_that_does_not_move_the_cookie_changes_nothing() -> None:
    world = World()
    world.poke(row("a", 1))
    world.poke(row("b", 1), cookie=world.state.record.cookie)
    assert world.counts == {"a": 1}


def test_rows_of_unknown_tables_are_left_out_and_keyless_ones_refused() -> None:
    world = World()
    world.poke({"op": "put", "tableName": "stranger", "value": {"id": "s"}}, row("a", 1))
    assert world.counts == {"a": 1}
    with pytest.raises(PokeError, match="without its key"):
        world.poke({"op": "put", "value": {"count": 1}})


def test_an_update_changes_some_columns_of_the_server_s_row() -> None:
    world = World()
    world.poke({"op": "put", "value": {"id": "a", "count": 1, "note": "n"}})
    world.mutate("add", id="a", by=10)
    world.poke({"op": "update", "id": {"id": "a"}, "merge": {"count": 5}})
    assert world.view.result == [{"id": "a", "count": 15, "note": "n"}]
    world.poke({"op": "update", "id": {"id": "a"}, "merge": {"count": 6}, "constrain": ["count"]}, last=1)
    assert world.view.result == [{"id": "a", "count": 6, "note": None}]


def test_a_clear_drops_the_server_s_rows_and_keeps_open_mutations() -> None:
    world = World()
    world.poke(row("a", 1), row("b", 2))
    world.mutate("add", id="a", by=10)
    world.poke({"op": "clear"}, row("c", 3))
    assert world.counts == {"a": 10, "c": 3}


def test_a_server_that_forgot_costs_its_rows_and_not_the_queue() -> None:
    world = World()
    world.poke(row("a", 1), row("b", 2))
    world.mutate("add", id="a", by=10)
    identity = world.state.record.identity
    world.state.forget_server()
    assert world.counts == {"a": 10}
    assert world.state.record.cookie is None
    assert world.state.record.identity == identity
    assert [lost.name for lost in world.state.become_new_client()] == ["add"]
    assert world.counts == {}
    assert world.state.record.identity != identity


def test_true_is_not_one() -> None:
    world = World()
    world.poke({"op": "put", "value": {"id": "a", "count": 1, "note": {"deep": 1}}})
    world.poke({"op": "put", "value": {"id": "a", "count": 1, "note": {"deep": True}}})
    (shown,) = world.view.result or []
    assert isinstance(shown, dict)
    assert shown["note"]["deep"] is True


# --- random histories against a model that does everything from scratch ---


def model(server: dict[str, int], queue: list[tuple[str, dict[str, Any]]]) -> dict[str, int]:
    rows = dict(server)
    for name, args in queue:
        if name == "put":
            rows[args["id"]] = args["count"]
        elif name == "add":
            rows[args["id"]] = rows.get(args["id"], 0) + args["by"]
        elif name == "drop":
            rows.pop(args["id"], None)
        else:
            rows = {id: count * 2 if count > 0 else count for id, count in rows.items()}
    return rows


@pytest.mark.parametrize("seed", range(12))
def test_any_history_shows_what_a_replay_from_scratch_shows(seed: int, tmp_path: Path) -> None:
    """Mutations, pokes that confirm some of them, and restarts from the file, in any order."""
    chance = random.Random(seed)
    path = tmp_path / "client.db"
    store = SqliteLocalStore(path)
    world = World(store)
    server: dict[str, int] = {}
    queue: list[tuple[str, dict[str, Any]]] = []
    confirmed = 0
    for _ in range(40):
        what = chance.choice(["mutate", "mutate", "poke", "poke", "restart"])
        id = chance.choice("abcd")
        if what == "mutate":
            mutations: list[tuple[str, dict[str, Any]]] = [
                ("put", {"id": id, "count": chance.randint(0, 9)}),
                ("add", {"id": id, "by": 1}),
                ("drop", {"id": id}),
                ("double", {}),
            ]
            name, args = chance.choice(mutations)
            world.mutate(name, **args)
            queue.append((name, args))
        elif what == "poke":
            done = chance.randint(0, len(queue))
            before = dict(server)
            server = model(server, [each for each in queue[:done] if chance.random() < 0.8])
            if chance.random() < 0.5:
                server[id] = chance.randint(0, 9)
            queue, confirmed = queue[done:], confirmed + done
            changed = [
                row(each, server[each]) if each in server else gone(each)
                for each in before | server
                if before.get(each) != server.get(each)
            ]
            world.poke(*changed, last=confirmed)
        else:
            store.close()
            store = SqliteLocalStore(path)
            world = World(store)
        assert world.counts == dict(sorted(model(server, queue).items())), what
    store.close()
