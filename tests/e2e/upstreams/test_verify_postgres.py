"""`verify` and `inspect` over a real Postgres: the same while the pipeline follows, differences by key once it stopped.

Reading the database beside the pipeline must not disturb the slot that the pipeline follows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from changesource_cli.app import app
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.serving import Serving
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

SECONDS = 90.0
SETUP = (
    "CREATE TABLE item (id int8, region text, price numeric(9, 2), note jsonb, made timestamptz)",
    "ALTER TABLE item ADD PRIMARY KEY (region, id)",
    "INSERT INTO item SELECT n, 'north', n / 4.0, jsonb_build_object('n', n), now() FROM generate_series(1, 20) n",
)
CHANGES = (
    "UPDATE item SET price = 7, note = '[1, null]' WHERE id = 3",
    "DELETE FROM item WHERE id = 4",
    "INSERT INTO item VALUES (1, 'south', NULL, NULL, 'infinity')",
)
UNSEEN = (
    "UPDATE item SET price = 8.5 WHERE id = 3",
    "DELETE FROM item WHERE id = 5",
    "INSERT INTO item VALUES (2, 'south', 1, NULL, NULL)",
)


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def verified(state: Path, url: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and what was found about the table."""
    options = ["verify", "postgres", "--set", f"dsn={url}", "--state", str(state), "--json"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code in (0, 1), result.output
    (comparison,) = json.loads(result.stdout)
    assert comparison["stages"].keys() == {"upstream", "log"}
    return result.exit_code, comparison["tables"]["item"]


def test_a_database_is_compared_with_its_log_and_what_differs_told_by_key(
    logical_postgres: PostgresServer, tmp_path: Path
) -> None:
    url = logical_postgres.create_database("verify")
    run(url, *SETUP)
    with Serving("postgres", {"dsn": url}, tmp_path / "state") as endpoint:
        endpoint.start()
        run(url, *CHANGES)
        until(lambda: verified(endpoint.state, url)[0] == 0, "the log to have the changes", seconds=SECONDS)
        _, item = verified(endpoint.state, url)
        assert (item["same"], item["rows"]) == (True, {"upstream": 20, "log": 20})
        told = CliRunner().invoke(
            app, ["inspect", str(endpoint.state), "--adapter", "postgres", "--set", f"dsn={url}", "--json"]
        )
        upstream, log = json.loads(told.stdout)["holds"]
        assert upstream["tables"]["item"] == log["tables"]["item"] == {"rows": 20, "digest": item["digests"]["log"]}
        endpoint.stop()
        run(url, *UNSEEN)
        code, item = verified(endpoint.state, url)
        assert code == 1
        assert item["differences"] == [
            {"table": "item", "key": ["north", 3], "column": "price", "expected": 8.5, "found": 7},
            {"table": "item", "key": ["north", 5], "only": "log"},
            {"table": "item", "key": ["south", 2], "only": "upstream"},
        ]
        endpoint.start()
        until(lambda: verified(endpoint.state, url)[0] == 0, "the log to catch up", seconds=SECONDS)
        assert endpoint.status()["log"]["generation"] == 1
