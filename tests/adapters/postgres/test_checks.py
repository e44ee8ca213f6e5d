"""A store that will not do is told before anything is made in it, with what to run."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from adapters.postgres import PostgresAdapter
from changesource_cli.app import app
from changesource_sdk.adapter import Check, Examining
from changesource_sdk.errors import AdapterError
from tests.support.peers.postgres_server import PostgresServer
from tests.support.ports import free_port


@pytest.fixture(scope="module")
def narrow_postgres() -> Iterator[PostgresServer]:
    """A server that leaves room for one slot."""
    with PostgresServer(wal_level="logical", max_replication_slots="1", max_wal_senders="2") as server:
        yield server


def _refusal(dsn: str, **settings: str) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        PostgresAdapter(dsn, **settings).snapshot()
    return caught.value


def _as_role(dsn: str, *statements: str, options: str = "LOGIN") -> str:
    """The address of the same database for a role of its own; in the statements `{role}` is its name."""
    role = f"role_{secrets.token_hex(4)}"
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} {options}".encode())
        for statement in statements:
            db.execute(statement.format(role=role).encode())
    return dsn.replace("changesource@", f"{role}@")


def test_a_server_without_logical_wal_is_told_how_to_get_it(postgres: PostgresServer) -> None:
    error = _refusal(postgres.create_database("store"))
    assert error.code == "wal-level"
    assert "wal_level is replica" in error.message
    assert "ALTER SYSTEM SET wal_level = 'logical'" in error.fix


def test_a_role_that_may_not_replicate_is_named(dsn: str) -> None:
    error = _refusal(_as_role(dsn))
    assert error.code == "replication-privilege"
    assert "REPLICATION;" in error.fix
    assert "ALTER ROLE" in error.fix


def test_a_role_that_may_not_create_is_told_what_to_grant(dsn: str) -> None:
    error = _refusal(_as_role(dsn, options="LOGIN REPLICATION"))
    assert error.code == "create-privilege"
    assert error.fix.startswith("as the database's owner: GRANT CREATE ON DATABASE")


def test_tables_that_cannot_be_read_are_named(dsn: str) -> None:
    name = dsn.rpartition("/")[2]
    own = _as_role(
        dsn,
        f"GRANT CREATE ON DATABASE {name} TO {{role}}",
        "CREATE TABLE secret (id int PRIMARY KEY)",
        "CREATE PUBLICATION chosen FOR TABLE secret",
        options="LOGIN REPLICATION",
    )
    error = _refusal(own, publication="chosen")
    assert error.code == "select-privilege"
    assert "GRANT SELECT ON public.secret" in error.fix


def test_a_role_with_nothing_to_publish_is_told_what_to_run(dsn: str) -> None:
    name = dsn.rpartition("/")[2]
    own = _as_role(dsn, f"GRANT CREATE ON DATABASE {name} TO {{role}}", options="LOGIN REPLICATION")
    error = _refusal(own)
    assert error.code == "nothing-to-publish"
    assert "CREATE PUBLICATION" in error.fix


def test_too_few_slots_are_told_with_the_number_needed(narrow_postgres: PostgresServer) -> None:
    error = _refusal(narrow_postgres.create_database("store"))
    assert error.code == "max-replication-slots"
    assert "1 of max_replication_slots are free, 2 are needed" in error.message
    assert "ALTER SYSTEM SET max_replication_slots" in error.fix


def test_a_server_that_is_not_there_is_told_with_its_address() -> None:
    port = free_port()
    error = _refusal(f"postgresql://nobody:hidden@127.0.0.1:{port}/none")
    assert error.code == "server-unreachable"
    assert str(port) in error.where
    assert "hidden" not in str(error)


def test_a_database_that_is_not_there_is_told(logical_postgres: PostgresServer) -> None:
    assert _refusal(logical_postgres.url("absent")).code == "no-such-database"


def test_a_slot_of_another_kind_is_left_alone(dsn: str) -> None:
    slot = f"s_{secrets.token_hex(6)}"
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("SELECT pg_create_physical_replication_slot(%s)", (slot,))
        try:
            assert _refusal(dsn, slot=slot).code == "slot-unsuitable"
        finally:
            db.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


def test_doctor_hears_everything_and_nothing_is_made(dsn: str) -> None:
    adapter = PostgresAdapter(dsn)
    assert isinstance(adapter, Examining)
    found = {check.name: check for check in adapter.examine()}
    assert all(check.ok and not check.fix for check in found.values())
    assert found["publication"] == Check("publication", True, "changesource_zero_0 will be made")
    assert found["wal-level"].message == "wal_level is logical"
    with psycopg.connect(dsn) as db:
        assert db.execute("SELECT to_regnamespace('changesource_state'), count(*) FROM pg_publication").fetchone() == (
            None,
            0,
        )


def test_the_doctor_command_says_what_to_run(postgres: PostgresServer, tmp_path: Path) -> None:
    options = ["doctor", "postgres", "--set", f"dsn={postgres.create_database('store')}", "--state", str(tmp_path)]
    result = CliRunner().invoke(app, [*options, "--listen", "127.0.0.1:0", "--json"])
    wrong = {finding["check"]: finding["fix"] for finding in json.loads(result.stdout) if not finding["ok"]}
    assert wrong == {"wal-level": "ALTER SYSTEM SET wal_level = 'logical'; then restart the server"}
    assert result.exit_code == AdapterError.exit_code


def test_the_doctor_command_tells_of_a_server_that_is_not_there(tmp_path: Path) -> None:
    dsn = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    options = ["doctor", "postgres", "--set", f"dsn={dsn}", "--state", str(tmp_path), "--listen", "127.0.0.1:0"]
    result = CliRunner().invoke(app, [*options, "--json"])
    (store,) = [finding for finding in json.loads(result.stdout) if finding["check"] == "store"]
    assert not store["ok"]
    assert "Connection refused" in store["message"]
