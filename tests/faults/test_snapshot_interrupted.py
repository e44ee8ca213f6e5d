"""The pipeline ended while it writes the snapshot: it begins again, and nothing half-written is served."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.fixtures.serving import MakeServing, MakeStore
from tests.support.peers.serving import Serving
from tests.support.waiting import until

TABLE = "CREATE TABLE item (id INTEGER PRIMARY KEY, body TEXT)"
ROWS = 250_000


def kill(endpoint: Serving) -> None:
    endpoint.kill()


def terminate(endpoint: Serving) -> None:
    assert endpoint.stop() == 0


@pytest.mark.parametrize("end", [kill, terminate])
def test_interrupted_snapshot_is_taken_again_and_served_whole(
    end: Callable[[Serving], None], store: MakeStore, serving: MakeServing
) -> None:
    data = store(TABLE)
    data.insert("item", ((number, f"body {number}") for number in range(ROWS)))
    endpoint = serving(data)
    endpoint.launch()
    until(lambda: list(endpoint.state.glob("spool/**/*.frames")), "the first part of a snapshot", seconds=60)
    assert not endpoint.ready(), "the store must be large enough to be interrupted"
    end(endpoint)

    endpoint.start()
    with RawConsumer(endpoint.stream_url, keep=True) as consumer:
        ids: list[int] = []
        while not consumer.counted.commits:
            ids += [
                message[1]["new"]["id"]
                for message in consumer.messages()
                if message[0] == "data" and message[1].get("relation", {}).get("name") == "item"
            ]
    assert sorted(ids) == list(range(ROWS))
    assert len([path for path in (endpoint.state / "spool").iterdir() if path.is_dir()]) == 1, "no litter in the spool"
