"""Pokes put together and read: all of one or nothing, the last word counts."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.sync.downstream import PokeEnd, PokePart, PokeStart
from reference_cache.client.merged_poke import merge_poke
from reference_cache.client.pokes import Poke, PokeAssembly, PokeError, WrongBase, check_follows

START = PokeStart.model_validate({"pokeID": "p", "baseCookie": "01"})
END = PokeEnd.model_validate({"pokeID": "p", "cookie": "02"})


def part(**fields: Any) -> PokePart:
    return PokePart.model_validate({"pokeID": "p", **fields})


def poke(*parts: PokePart) -> Poke:
    return Poke("01", "02", parts)


def test_a_poke_is_nothing_until_its_end() -> None:
    assembly = PokeAssembly()
    middle = part(lastMutationIDChanges={"c": 1})
    assert [assembly.take(each) for each in (START, middle)] == [None, None]
    assert assembly.take(END) == poke(middle)


def test_a_cancelled_poke_is_nothing_and_the_next_may_come() -> None:
    assembly = PokeAssembly()
    assembly.take(START)
    assert assembly.take(PokeEnd.model_validate({"pokeID": "p", "cookie": "", "cancel": True})) is None
    assembly.take(START)
    assert assembly.take(END) == poke()


@pytest.mark.parametrize("messages", [(START, START), (END,), (part(),), (START, END, END)])
def test_messages_out_of_turn_are_refused(messages: tuple[PokeStart | PokePart | PokeEnd, ...]) -> None:
    assembly = PokeAssembly()
    for message in messages[:-1]:
        assembly.take(message)
    with pytest.raises(PokeError):
        assembly.take(messages[-1])


def test_a_part_of_another_poke_is_refused() -> None:
    assembly = PokeAssembly()
    assembly.take(START)
    with pytest.raises(PokeError, match="not under way"):
        assembly.take(PokePart.model_validate({"pokeID": "other"}))


def test_a_poke_starts_from_the_cookie_one_has_and_does_not_go_back() -> None:
    check_follows(poke(), "01")
    with pytest.raises(WrongBase):
        check_follows(poke(), None)
    with pytest.raises(PokeError, match="goes back"):
        check_follows(Poke("02", "01"), "02")


def test_only_what_concerns_the_client_is_read() -> None:
    mutations = [
        {"op": "put", "mutation": {"id": {"clientID": client, "id": 1}, "result": {"error": "app", "of": client}}}
        for client in ("me", "you")
    ]
    content = merge_poke(
        poke(
            part(
                lastMutationIDChanges={"me": 4, "you": 9},
                desiredQueriesPatches={"me": [{"op": "put", "hash": "h1"}], "you": [{"op": "put", "hash": "h2"}]},
                mutationsPatch=[*mutations, {"op": "del", "id": {"clientID": "you", "id": 2}}],
            )
        ),
        "me",
    )
    assert (content.last_mutation_id, content.desired) == (4, {"h1"})
    assert content.results == {1: {"error": "app", "of": "me"}}
    assert content.forgotten == set()


def test_of_two_patches_of_one_query_the_last_counts() -> None:
    content = merge_poke(
        poke(
            part(gotQueriesPatch=[{"op": "put", "hash": "a"}, {"op": "del", "hash": "b"}]),
            part(gotQueriesPatch=[{"op": "del", "hash": "a"}, {"op": "put", "hash": "b"}]),
        ),
        "me",
    )
    assert (content.got, content.ungot) == ({"b"}, {"a"})


@pytest.mark.parametrize("field", ["rowsPatch", "gotQueriesPatch", "mutationsPatch"])
def test_a_clear_anywhere_voids_everything_before_it(field: str) -> None:
    rows = [{"op": "put", "tableName": "t", "value": {"id": 1}}]
    before = part(gotQueriesPatch=[{"op": "put", "hash": "a"}], rowsPatch=rows)
    content = merge_poke(poke(before, part(**{field: [{"op": "clear"}]}), part(rowsPatch=rows)), "me")
    assert content.cleared
    assert content.got == set()
    assert len(content.rows) == 1
