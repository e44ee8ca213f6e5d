"""Each test of this folder gets a database of its own in a real Postgres with logical decoding."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters.postgres.connection import Connection, connect
from adapters.postgres.settings import PostgresSettings
from tests.adapters.postgres.following import Follower
from tests.support.peers.postgres_server import PostgresServer

MakeFollower = Callable[..., Follower]


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


@pytest.fixture
def following(dsn: str, db: Connection, tmp_path: Path) -> Iterator[MakeFollower]:
    """Makes a follower of the database after running statements in it."""
    made: list[Follower] = []

    def make(*statements: str, **settings: str) -> Follower:
        for statement in statements:
            db.execute(statement.encode())
        slot = f"s_{secrets.token_hex(6)}"
        made.append(Follower(PostgresSettings.parse(dsn, slot=slot, **settings), tmp_path))
        return made[-1]

    yield make
    for follower in made:
        follower.drop()
