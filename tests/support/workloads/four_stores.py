"""Four upstreams for one endpoint: users in Postgres, events in Kafka, forecasts in Delta, notes in SQLite.

Each write is done by the store's own client, and what the store then holds is read back from it (Kafka's is kept here),
so that a replica is compared with the stores and not with what a test believes.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow as pa

from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.replica import Replica, ReplicaError
from tests.support.waiting import until
from tests.support.workloads.delta_lake import Lake

Rows = list[tuple[object, ...]]
TABLES = {
    "user": ("id", "name"),
    "event": ("id", "user_id", "kind"),
    "forecast": ("id", "user_id", "value"),
    "note": ("id", "user_id", "body"),
}


class FourStores:
    """All four, each with a few rows. Kafka and Postgres are servers of the caller's."""

    def __init__(self, folder: Path, postgres: PostgresServer, kafka: KafkaBroker) -> None:
        self.postgres = postgres
        self.kafka = kafka
        self._dsn = postgres.create_database("crm")
        self._execute('CREATE TABLE "user" (id bigint PRIMARY KEY, name text)')
        self._topic = kafka.create_topic(kafka.topic_name("event"), 2)
        self._events: dict[str, tuple[object, ...]] = {}
        self._lake = Lake(folder / "forecast", _forecasts((1, 1, 0.5)))
        self.notes = folder / "notes.db"
        make_notes(self.notes)
        self.add_user(1, "Ada")
        self.add_event("e1", 1, "login")
        self.add_note(1, 1, "first")

    def config(self, path: Path) -> Path:
        """A configuration file with the four sources."""
        path.write_text(
            f"""
[sources.crm]
adapter = "postgres"
set = {{ dsn = "{self._dsn}" }}

[sources.events]
adapter = "kafka"
[sources.events.set]
bootstrap = "{self.kafka.bootstrap}"
topics = "{self._topic}"
format = "upsert"
[sources.events.set.tables.event]
topic = "{self._topic}"
key = ["id"]
columns = {{ id = "text", user_id = "int8", kind = "text" }}

[sources.lake]
adapter = "spark-tables"
[sources.lake.set.tables.forecast]
delta = "{self._lake.path}"
key = "id"
poll = "0.2"

[sources.notes]
adapter = "sqlite"
set = {{ path = "{self.notes}" }}
"""
        )
        return path

    def add_user(self, number: int, name: str) -> None:
        self._execute('INSERT INTO "user" VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET name = %s', number, name, name)

    def allow_all(self) -> None:
        """Let clients read every table: the permissions are in Postgres, with Zero's other tables."""
        rule = {"row": {"select": [["allow", {"type": "and", "conditions": []}]]}}
        document = json.dumps({"tables": dict.fromkeys(TABLES, rule)})
        self._execute("UPDATE zero.permissions SET permissions = %s", document)

    def add_event(self, key: str, user: int, kind: str) -> None:
        with self.kafka.producer() as producer:
            value = json.dumps({"user_id": user, "kind": kind}).encode()
            producer.send(self._topic, key=json.dumps({"id": key}).encode(), value=value)
            producer.flush()
        self._events[key] = (key, user, kind)

    def add_forecast(self, number: int, user: int, value: float) -> None:
        self._lake.merge(_forecasts((number, user, value)))

    def add_note(self, number: int, user: int, body: str) -> None:
        with closing(sqlite3.connect(self.notes)) as connection, connection:
            connection.execute("INSERT OR REPLACE INTO note VALUES (?, ?, ?)", (number, user, body))

    def drop_slot(self) -> None:
        """Take the replication slot away, as an operator does whose disk fills up: changes cannot be continued."""
        slot = "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = current_database()"

        def is_dropped() -> bool:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                for name, reader in connection.execute(slot).fetchall():
                    try:
                        connection.execute("SELECT pg_terminate_backend(%s, 5000)", [reader] if reader else [0])
                        connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
                    except psycopg.errors.ObjectInUse:
                        return False
            return True

        until(is_dropped, "the slot to be dropped")

    def write_each(self, number: int) -> None:
        """One change in every store."""
        self.add_user(number, f"user {number}")
        self.add_event(f"e{number}", number, "made")
        self.add_forecast(number, number, number / 2)
        self.add_note(number, number, f"note {number}")

    def rows(self) -> dict[str, Rows]:
        """What the stores hold, by table, in the order of the keys."""
        with psycopg.connect(self._dsn) as connection:
            users = connection.execute('SELECT id, name FROM "user" ORDER BY id').fetchall()
        with closing(sqlite3.connect(self.notes)) as connection_to_notes:
            notes = connection_to_notes.execute("SELECT id, user_id, body FROM note ORDER BY id").fetchall()
        forecasts = [tuple(row[name] for name in TABLES["forecast"]) for row in self._lake.rows()]
        return {"user": users, "event": sorted(self._events.values()), "forecast": forecasts, "note": notes}

    def wait_until_same(self, replica: Replica, *, seconds: float = 180) -> None:
        """Wait until the replica holds what the four stores hold now."""
        wanted = self.rows()

        def is_same() -> bool:
            try:
                return wanted == {name: replica.rows(name, columns) for name, columns in TABLES.items()}
            except ReplicaError:
                return False

        until(is_same, f"the replica to equal the stores: {wanted}", seconds=seconds)

    def _execute(self, statement: str, *parameters: object) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(statement.encode(), parameters)


def make_notes(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, user_id INTEGER, body TEXT)")


def _forecasts(*rows: tuple[int, int, float]) -> pa.Table:
    ids, users, values = zip(*rows, strict=True)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "user_id": pa.array(users, pa.int64()), "value": pa.array(values)}
    )
