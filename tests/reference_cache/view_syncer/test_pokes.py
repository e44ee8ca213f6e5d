"""Pokes as frames: what they say, and where their parts end."""

import json
from typing import Any

from reference_cache.view_syncer.pipelines.row_keys import delete
from reference_cache.view_syncer.pokes import MAX_BYTES, MAX_PATCHES, PokeContent, compose, row_chunks


def read(content: PokeContent, base: str | None = "01", cookie: str = "02") -> list[Any]:
    return [json.loads(frame) for frame in compose(base, cookie, content).frames]


def test_an_empty_poke_is_a_start_and_an_end() -> None:
    assert read(PokeContent(), None, "00:01") == [
        ["pokeStart", {"pokeID": "00:01", "baseCookie": None}],
        ["pokeEnd", {"pokeID": "00:01", "cookie": "00:01"}],
    ]


def test_everything_small_goes_into_one_part() -> None:
    content = PokeContent(
        desired={"c1": [("put", "a"), ("del", "b")]},
        got=[("put", "a")],
        last_mutation_ids={"c1": 3},
        mutations=[{"op": "del", "id": {"clientID": "c1", "id": 2}}],
        rows=row_chunks([delete("issue", '{"id":"1"}')]),
    )
    _, part, _ = read(content)
    assert part == [
        "pokePart",
        {
            "pokeID": "02",
            "lastMutationIDChanges": {"c1": 3},
            "desiredQueriesPatches": {"c1": [{"op": "put", "hash": "a"}, {"op": "del", "hash": "b"}]},
            "gotQueriesPatch": [{"op": "put", "hash": "a"}],
            "mutationsPatch": [{"op": "del", "id": {"clientID": "c1", "id": 2}}],
            "rowsPatch": [{"op": "del", "tableName": "issue", "id": {"id": "1"}}],
        },
    ]


def test_parts_end_after_a_hundred_patches_or_a_mebibyte() -> None:
    small = [b"{}"] * (2 * MAX_PATCHES + 1)
    assert [len(json.loads(b"[%b]" % chunk)) for chunk in row_chunks(small)] == [MAX_PATCHES, MAX_PATCHES, 1]
    large = [b'"%b"' % (b"x" * (MAX_BYTES // 2)) for _ in range(5)]
    assert [len(json.loads(b"[%b]" % chunk)) for chunk in row_chunks(large)] == [1, 1, 1, 1, 1]
    assert row_chunks([]) == []
