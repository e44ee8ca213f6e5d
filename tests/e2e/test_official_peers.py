"""The harness itself: the official cache and client follow a change source that is none of ours."""

from __future__ import annotations

import pytest

from tests.support.fakes.tiny_source import SNAPSHOT, TinySource, insert
from tests.support.fixtures.zero_cache import MakeZeroCache, MakeZeroClient

pytestmark = pytest.mark.e2e
ITEM = {"item": {"id": "number", "name": "string"}}


def test_cache_and_client_follow_a_minimal_source_and_resume_after_a_stop(
    zero_cache: MakeZeroCache, zero_client: MakeZeroClient
) -> None:
    with TinySource(insert(1, "one")) as source:
        cache = zero_cache(source.url).start()
        assert cache.replica.version() == SNAPSHOT
        client = zero_client(cache, ITEM)
        client.wait_for_rows("item", [{"id": 1, "name": "one"}])

        source.wait_for_ack(source.commit(insert(2, "two")))
        client.wait_for_rows("item", [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}])

        assert cache.stop() == 0
        missed = source.commit(insert(3, "three"))
        cache.start()
        cache.replica.wait_for_watermark(missed)
        assert cache.replica.rows("item", ["id", "name"]) == [(1, "one"), (2, "two"), (3, "three")]
