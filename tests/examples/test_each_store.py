"""Every example of a store, run by the command on its page, shows what the page says and leaves nothing behind."""

from __future__ import annotations

import sys

import psycopg
import pytest

from tests.docs.fences import ROOT, block
from tests.support.child_process import ChildProcess
from tests.support.kafka_broker import KafkaBroker
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import until

SECONDS = 240.0

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def shown_by(command: str, **env: str) -> list[str]:
    """What an example prints once its flow runs; it must end by itself, and well."""
    python, *words = command.split()
    assert python == "python"
    with ChildProcess([sys.executable, "-u", *words], cwd=ROOT, env=env) as example:
        assert example.wait(SECONDS) == 0, example.tail(200)
        assert example.tree() == []
        return example.lines[example.wait_for_line("cache: running on port ") :]


def test_sqlite() -> None:
    shown = shown_by(block("examples/sqlite/README.md", "python -m"))
    assert shown == block("examples/sqlite/README.md", "running low: ").splitlines()


def test_postgres(logical_postgres: PostgresServer) -> None:
    shown = shown_by(block("examples/postgres/README.md", "python -m"), DATABASE_URL=logical_postgres.url())
    assert shown == block("examples/postgres/README.md", "at first: ").splitlines()
    with psycopg.connect(logical_postgres.url()) as connection:
        left = "SELECT datname FROM pg_database WHERE datname LIKE 'changesource_example_%'"
        assert connection.execute(left).fetchall() == []


def test_kafka(kafka: KafkaBroker) -> None:
    shown = shown_by(block("examples/kafka/README.md", "python -m"), KAFKA_BOOTSTRAP=kafka.bootstrap)
    assert shown == block("examples/kafka/README.md", "too warm: ").splitlines()
    with kafka.admin() as admin:
        until(lambda: not [name for name in admin.list_topics() if name.startswith("example-")], "the topic to be gone")


def test_delta() -> None:
    shown = shown_by(block("examples/delta/README.md", "python -m"))
    assert shown == block("examples/delta/README.md", "  Ada: ").splitlines()


@pytest.mark.parametrize("example", ["postgres", "kafka"])
def test_without_a_server_it_is_said_how_to_get_one(example: str) -> None:
    with ChildProcess([sys.executable, "-m", f"examples.{example}"], cwd=ROOT, env={"DATABASE_URL": ""}) as process:
        assert process.wait(SECONDS) == 1
        assert "README.md says how to start one" in process.tail()
