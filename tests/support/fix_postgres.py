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
    # The stream shows what is flushed, and without synchronous commits that takes a while.
    settings = {"wal_level": "logical", "synchronous_commit": "on"}
    with PostgresServer(**settings, max_wal_senders="60", max_replication_slots="500") as server:
        yield server
