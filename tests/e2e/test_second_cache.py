"""A second cache, of another app, costs the store nothing: it is served from the spool and the log."""

from __future__ import annotations

import pytest

from tests.support.fixtures.serving import MakeServing, MakeStore
from tests.support.fixtures.zero_cache import MakeZeroCache
from tests.support.workloads.sqlite_store import difference, wait_until_same

pytestmark = pytest.mark.e2e


def test_second_cache_is_served_while_the_store_is_gone(
    store: MakeStore, serving: MakeServing, zero_cache: MakeZeroCache
) -> None:
    data = store("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
    data.insert("item", [(number, f"name {number}") for number in range(1000)])
    endpoint = serving(data).start()
    first = zero_cache(endpoint.stream_url).start()
    data.insert("item", [(number, f"live {number}") for number in range(1000, 1100)])
    wait_until_same(data, first.replica)

    endpoint.stop()
    away = data.path.rename(data.path.with_suffix(".away"))
    endpoint.start()
    second = zero_cache(endpoint.stream_url, app_id="other").start()
    assert not data.path.exists()
    away.rename(data.path)

    wait_until_same(data, second.replica)
    assert {"other_0.clients", "other_0.mutations", "other.permissions"} <= second.replica.tables()
    assert second.replica.version() > first.replica.watermark(), "it began with everything there was"

    data.insert("item", [(5000, "for both")])
    wait_until_same(data, first.replica)
    wait_until_same(data, second.replica)
    assert difference(data, second.replica) == ""
