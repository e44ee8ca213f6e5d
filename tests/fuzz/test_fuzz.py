"""The short form of `make fuzz`: no input makes a decoder fail in another way than it announces, or a server ill."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.fuzz.lanes import run_sockets, run_target
from tests.fuzz.targets import TARGETS, Target
from tests.support.fixtures.serving import MakeServing, MakeStore
from tests.support.peers.reference_cache import ReferenceCache

SEED = int(os.environ.get("FUZZ_SEED", "20261118"))
INPUTS = 600
SOCKET_INPUTS = int(os.environ.get("FUZZ_SOCKET_INPUTS", "200"))
SOCKET_SECONDS = float(os.environ.get("FUZZ_SECONDS", "20"))
#: 250 ms where nothing else runs (`make fuzz`); the tests share the machine with others.
LONGEST_PONG = float(os.environ.get("FUZZ_LONGEST_PONG", "5"))
SCHEMA = {
    "tables": {"issue": {"columns": {"id": {"type": "string"}, "title": {"type": "string"}}, "primaryKey": ["id"]}}
}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_input_is_taken_or_refused_as_announced(target: Target) -> None:
    done = run_target(target, SEED, inputs=INPUTS)
    assert done.inputs == INPUTS
    assert target.refuses == () or done.refused > 0


@pytest.mark.e2e
def test_a_healthy_client_is_answered_while_others_send_nonsense(
    store: MakeStore, serving: MakeServing, tmp_path: Path
) -> None:
    data = store("CREATE TABLE issue (id TEXT PRIMARY KEY, title TEXT)", "INSERT INTO issue VALUES ('1', 'one')")
    endpoint = serving(data).start()
    with ReferenceCache(endpoint.stream_url, tmp_path) as cache:
        cache.start()
        init: dict[str, object] = {"desiredQueriesPatch": [], "clientSchema": SCHEMA}
        done = asyncio.run(
            run_sockets(SEED, endpoint.stream_url, cache.port, init, inputs=SOCKET_INPUTS, seconds=SOCKET_SECONDS)
        )
        print(
            f"{done.inputs} inputs on sockets, pong p50 {done.pong(0.5) * 1000:.0f} p99 {done.pong(0.99) * 1000:.0f} ms"
        )
        assert done.inputs >= SOCKET_INPUTS
        assert done.pong(0.99) < LONGEST_PONG
        assert endpoint.ready()
        assert cache.process.running
