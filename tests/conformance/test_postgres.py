"""The Postgres adapter keeps the adapter contract, on a real server."""

import pytest

from changesource_sdk.testing.conformance import conformance
from tests.conformance.postgres_harness import PostgresHarness
from tests.support.peers.postgres_server import PostgresServer


class TestPostgres(conformance(PostgresHarness)):  # type: ignore[misc]
    @pytest.fixture
    def harness(self, logical_postgres: PostgresServer) -> PostgresHarness:
        return PostgresHarness(logical_postgres)
