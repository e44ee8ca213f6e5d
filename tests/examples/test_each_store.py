"""Every example of a store, run by the command on its page, shows what the page says and leaves nothing behind.

The one of Kafka is in `test_kafka_examples`, where there is a broker.
"""

from __future__ import annotations

import sys

import psycopg
import pytest

from tests.docs.fences import ROOT, block
from tests.examples.running import SECONDS, shown_by
from tests.support.child_process import ChildProcess
from tests.support.peers.postgres_server import PostgresServer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_sqlite() -> None:
    shown = shown_by(block("examples/sqlite/README.md", "python -m"))
    assert shown == block("examples/sqlite/README.md", "running low: ").splitlines()


def test_many_stores() -> None:
    shown = shown_by(block("examples/many_stores/README.md", "python -m"))
    assert shown == block("examples/many_stores/README.md", "customers: ").splitlines()


def test_postgres(logical_postgres: PostgresServer) -> None:
    shown = shown_by(block("examples/postgres/README.md", "python -m"), DATABASE_URL=logical_postgres.url())
    assert shown == block("examples/postgres/README.md", "at first: ").splitlines()
    with psycopg.connect(logical_postgres.url()) as connection:
        left = "SELECT datname FROM pg_database WHERE datname LIKE 'changesource_example_%'"
        assert connection.execute(left).fetchall() == []


def test_delta() -> None:
    shown = shown_by(block("examples/delta/README.md", "python -m"))
    assert shown == block("examples/delta/README.md", "  Ada: ").splitlines()


@pytest.mark.parametrize("example", ["postgres", "kafka"])
def test_without_a_server_it_is_said_how_to_get_one(example: str) -> None:
    nothing = {"DATABASE_URL": "", "KAFKA_BOOTSTRAP": ""}
    with ChildProcess([sys.executable, "-m", f"examples.{example}"], cwd=ROOT, env=nothing) as process:
        assert process.wait(SECONDS) == 1
        assert "README.md says how to start one" in process.tail()
