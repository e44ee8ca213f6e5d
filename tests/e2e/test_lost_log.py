"""A log that is lost or cut short leads to one clean reset with a higher watermark, and clients recover."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fixtures.serving import MakeServing, MakeStore
from tests.support.fixtures.zero_cache import MakeZeroCache, MakeZeroClient
from tests.support.peers.zero_cache import RESET_EXIT
from tests.support.workloads.sqlite_store import wait_until_same

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ITEM = {"item": {"id": "number", "name": "string"}}


def lose(state: Path) -> None:
    """All files of the log disappear."""
    for path in state.glob("log.sqlite*"):
        path.unlink()


def cut_short(state: Path) -> None:
    """The file ends in the middle, as after a failed copy."""
    log = state / "log.sqlite"
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.truncate(size // 2 + 100)
    for path in state.glob("log.sqlite-*"):
        path.unlink()


@pytest.mark.parametrize("damage", [lose, cut_short])
def test_damaged_log_costs_one_reset_and_clients_recover(
    damage: Callable[[Path], None],
    store: MakeStore,
    serving: MakeServing,
    zero_cache: MakeZeroCache,
    zero_client: MakeZeroClient,
) -> None:
    data = store("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)", "INSERT INTO item VALUES (1, 'one')")
    endpoint = serving(data).start()
    cache = zero_cache(endpoint.stream_url, supervised=True).start()
    client = zero_client(cache, ITEM)
    data.insert("item", [(2, "two")])
    client.wait_for_rows("item", [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}])
    before = cache.replica.watermark()

    endpoint.stop()
    damage(endpoint.state)
    data.run("INSERT INTO item VALUES (3, 'three')", "DELETE FROM item WHERE id = 1")
    endpoint.start()
    cache.wait_until_ready(run=1)

    wait_until_same(data, cache.replica)
    assert cache.replica.version() > before
    client.wait_for_rows("item", [{"id": 2, "name": "two"}, {"id": 3, "name": "three"}])
    data.insert("item", [(4, "four")])
    client.wait_for_rows("item", [{"id": 2, "name": "two"}, {"id": 3, "name": "three"}, {"id": 4, "name": "four"}])
    assert cache.exits == [RESET_EXIT]
