"""A group's configuration: a client that reconnects gets the sum of what others were sent step by step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.sync.messages import InitConnection
from protocol.watermark import EMPTY
from reference_cache.view_syncer.cvr.config import MAX_TTL, GroupConfig, GroupEdit, QueryOp, clamped_ttl

CLIENTS = ("c1", "c2")
HASHES = ("a", "b", "c")
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(CLIENTS), st.sampled_from(HASHES), st.sampled_from([0, 10, 500, -1])),
    st.tuples(st.just("del"), st.sampled_from(CLIENTS), st.sampled_from(HASHES)),
    st.tuples(st.just("clear"), st.sampled_from(CLIENTS)),
    st.tuples(st.just("delete client"), st.sampled_from(CLIENTS)),
    st.tuples(st.just("get")),
    st.tuples(st.just("wait"), st.integers(1, 600)),
)


class Reader:
    """What a client has that was sent everything since some version."""

    def __init__(self) -> None:
        self.desired: set[tuple[str, str]] = set()
        self.got: set[str] = set()

    def learn(self, desired: dict[str, list[QueryOp]], got: list[QueryOp]) -> None:
        for client, ops in desired.items():
            for op, hash in ops:
                (self.desired.add if op == "put" else self.desired.discard)((client, hash))
        for op, hash in got:
            (self.got.add if op == "put" else self.got.discard)(hash)

    def copy(self) -> Reader:
        copied = Reader()
        copied.desired, copied.got = set(self.desired), set(self.got)
        return copied


def patch(*ops: dict[str, Any]) -> Any:
    return InitConnection.model_validate({"desiredQueriesPatch": list(ops)}).desired_queries_patch


def put(hash: str, ttl: float | None = None) -> dict[str, Any]:
    op = {"op": "put", "hash": hash, "name": hash, "args": []}
    return op if ttl is None else {**op, "ttl": ttl}


def play(edit: GroupEdit, step: tuple[Any, ...], now: float) -> None:
    match step:
        case ("put", client, hash, ttl):
            edit.add_client(client)
            edit.apply(client, patch(put(hash, ttl)), now)
        case ("del", client, hash):
            edit.apply(client, patch({"op": "del", "hash": hash}), now)
        case ("clear", client):
            edit.apply(client, patch({"op": "clear"}), now)
        case ("delete client", client):
            edit.remove_clients([client], now)
        case ("get",):
            for query in list(edit.config.wanted()):
                edit.get(query.hash)
        case ("wait", _):
            for hash in edit.config.expired(now):
                edit.drop(hash)


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=25))
def test_catching_up_from_any_version_equals_having_been_there(steps: list[tuple[Any, ...]]) -> None:
    config = GroupConfig("g")
    reader, now = Reader(), 0.0
    past = {EMPTY: reader.copy()}
    for step in steps:
        now += step[1] if step[0] == "wait" else 1
        edit = GroupEdit(config)
        play(edit, step, now)
        before = config.version
        assert edit.finish() == (config.version > before)
        reader.learn(edit.desired, edit.got)
        past[config.version] = reader.copy()
        fresh = Reader()
        fresh.learn(config.desired_since(None), config.got_since(None))
        assert (fresh.desired, fresh.got) == (reader.desired, reader.got)
        for cookie, then in past.items():
            returned = then.copy()
            returned.learn(config.desired_since(cookie), config.got_since(cookie))
            assert (returned.desired, returned.got) == (reader.desired, reader.got), cookie


@pytest.mark.parametrize(("given", "kept"), [(None, 300_000), (-1, MAX_TTL), (0, 0), (1e9, MAX_TTL), (1500, 1500)])
def test_times_to_live_are_bounded(given: float | None, kept: float) -> None:
    assert clamped_ttl(given) == kept


def test_a_query_lives_as_long_as_the_longest_of_its_wishes() -> None:
    config = GroupConfig("g")
    edit = GroupEdit(config)
    edit.apply("c1", patch(put("a", 100)), 0)
    edit.apply("c2", patch(put("a", 300)), 0)
    assert config.next_expiry() is None
    edit.apply("c1", patch({"op": "del", "hash": "a"}), 10)
    assert config.expired(1e9) == []
    edit.apply("c2", patch({"op": "del", "hash": "a"}), 20)
    assert config.next_expiry() == 320
    assert (config.expired(319), config.expired(320)) == ([], ["a"])
