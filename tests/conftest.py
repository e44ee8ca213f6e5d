"""Fixtures by concern; each module of `tests/support/fixtures` provides one real peer.

`make test` runs on three workers (`scheduling`): one Spark session per run, and servers shared within a file. Two cores
bear a third, since tests mostly wait for processes to start.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.scheduling import ByFile, longest_first

pytest_plugins = [
    "tests.docs.receipts",
    "tests.support.fixtures.logging",
    "tests.support.fixtures.kafka",
    "changesource_sdk.testing.plugin",
    "tests.support.fixtures.mariadb",
    "tests.support.fixtures.postgres",
    "tests.support.fixtures.serving",
    "tests.support.fixtures.spark",
    "tests.support.fixtures.zero_cache",
]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)
