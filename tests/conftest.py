"""Fixtures by concern; each module of `tests/support` named `fix_*` provides one real peer.

`make test` runs on two workers. The tests of one file stay together, since they may share servers, and so do all tests
that need a Spark session in their own process: there is one per run.
"""

from __future__ import annotations

import pytest

pytest_plugins = [
    "tests.support.fix_logging",
    "changesource_sdk.testing.plugin",
    "tests.support.fix_postgres",
    "tests.support.fix_serving",
    "tests.support.fix_spark",
    "tests.support.fix_zero_cache",
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        needs_spark = "spark" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("spark" if needs_spark else item.nodeid.split("::")[0]))
