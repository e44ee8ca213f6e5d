"""Keys that are kept in their thousands weigh what they say."""

from __future__ import annotations

import tracemalloc
from datetime import date

import orjson

from changesource_sdk.pipeline.encoding.rows import kept_json

KEYS = 2000


def test_it_is_the_json_of_a_value() -> None:
    assert kept_json([1, "ö", None]) == orjson.dumps([1, "ö", None])
    assert kept_json([date(2024, 1, 31)]) == b'["2024-01-31"]'


def test_a_short_text_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [kept_json([number]) for number in range(KEYS)]
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(set(kept)) == KEYS
    assert taken < KEYS * 200
