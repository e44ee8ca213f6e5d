"""The SQLite adapter keeps the adapter contract."""

from changesource_sdk.testing.conformance import conformance
from tests.conformance.sqlite_harness import SqliteHarness

TestSqlite = conformance(SqliteHarness)
