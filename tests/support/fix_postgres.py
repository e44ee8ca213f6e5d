"""Fixtures `postgres` and, with logical decoding, `logical_postgres`: scratch servers for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def logical_postgres() -> Iterator[PostgresServer]:
    with PostgresServer(wal_level="logical", max_wal_senders="20", max_replication_slots="20") as server:
        yield server
