"""Which tests stay on one worker: those of a file, since they may share servers, and all that share a Spark session.

Files that start real peers come first: they take the longest, and at the end the other workers would wait for them.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SPARK_TESTS = ("tests/changesource_sdk/pipeline/spark/", "tests/adapters/spark_tables/")
PEERS = (
    "e2e",
    "changesource_demo",
    "changesource_cli/commands/test_new",
    "conformance",
    "examples",
    "docs",
    "faults",
    "adapters",
    "reference_cache",
)
LONG_TESTS = (*SPARK_TESTS, *(f"tests/{place}" for place in PEERS))


def longest_first(items: list[pytest.Item]) -> None:
    """Order tests as they should begin: by the first of `LONG_TESTS` that they belong to, and the others at last."""

    def rank(item: pytest.Item) -> int:
        return next((rank for rank, long in enumerate(LONG_TESTS) if item.nodeid.startswith(long)), len(LONG_TESTS))

    items.sort(key=rank)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands a worker whole files in their order, and all folders with a Spark session in their own process to one."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # by the number of tests, which says nothing of how long they take

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return SPARK_TESTS[0] if file.startswith(SPARK_TESTS) else file
