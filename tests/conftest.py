"""Fixtures by concern; each module of `tests/support` named `fix_*` provides one real peer."""

pytest_plugins = [
    "changesource_sdk.testing.plugin",
    "tests.support.fix_postgres",
    "tests.support.fix_serving",
    "tests.support.fix_spark",
    "tests.support.fix_zero_cache",
]
