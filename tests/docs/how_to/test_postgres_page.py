"""The page on Postgres names every setting, and what it says to remove is all that is made."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from adapters.postgres import PostgresAdapter
from adapters.postgres.connection import Connection, connect
from adapters.postgres.opening import open_snapshot, prepare
from adapters.postgres.settings import PostgresSettings
from tests.docs.fences import blocks, ran
from tests.support.peers.postgres_server import PostgresServer

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "postgres.md").read_text()
MADE = """SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT IN ('public', 'information_schema')
UNION ALL SELECT pubname FROM pg_publication UNION ALL SELECT evtname FROM pg_event_trigger
UNION ALL SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"""


def made(db: Connection) -> list[str]:
    return [row[0] for row in db.execute(MADE)]


def test_every_setting_is_in_the_table() -> None:
    table = PAGE.partition("## Settings")[2].partition("##")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert named == list(inspect.signature(PostgresAdapter).parameters)


def test_what_is_added_can_be_taken_out_as_the_page_says(logical_postgres: PostgresServer) -> None:
    settings = PostgresSettings.parse(logical_postgres.create_database("page"))
    with connect(settings.dsn) as db:
        before = made(db)
        prepare(settings)
        exported, _ = open_snapshot(settings)
        exported.close()
        assert len(made(db)) > len(before)
        (statements,) = blocks("docs/how-to/postgres.md", "sql")
        for statement in statements.strip().splitlines():
            db.execute(statement.encode())
        ran(statements)
        assert made(db) == before
