"""Each test of this folder gets a database of its own in a real Postgres with logical decoding."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adapters.postgres.connection import Connection, connect
from tests.support.postgres_server import PostgresServer


@pytest.fixture
def dsn(logical_postgres: PostgresServer) -> str:
    """The address of an empty database."""
    return logical_postgres.create_database("store")


@pytest.fixture
def db(dsn: str) -> Iterator[Connection]:
    """A session in that database."""
    with connect(dsn) as connection:
        connection.execute("SET search_path = public, pg_catalog")
        yield connection
