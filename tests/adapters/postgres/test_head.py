"""How far the log is behind a real Postgres: also when the server writes what no consumer gets."""

from __future__ import annotations

from pathlib import Path

from adapters.postgres import PostgresAdapter
from adapters.postgres.connection import Connection
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from tests.changesource_sdk.pipeline.runner_fixtures import Watched, running


def upstream(seen: Watched) -> dict[str, object]:
    report = seen.stage().get("upstream")
    return report if isinstance(report, dict) else {}


def test_the_log_catches_up_with_a_server_that_writes_other_tables(dsn: str, db: Connection, tmp_path: Path) -> None:
    db.execute("CREATE TABLE item (id int PRIMARY KEY)")
    db.execute("CREATE TABLE other (id int)")
    with running(lambda: PostgresAdapter(dsn, tables="item"), SqliteLogStore(tmp_path / "state")) as seen:
        seen.until_generation(1)
        db.execute("INSERT INTO item VALUES (1)")
        seen.until(lambda: b'"insert"' in b"".join(seen.log_payloads()), "the row")
        seen.until(lambda: upstream(seen).get("behind") == 0, "nothing behind")
        position, head = seen.log.state().position, upstream(seen)["head"]
        db.execute("INSERT INTO other SELECT generate_series(1, 1000)")
        seen.until(lambda: upstream(seen)["head"] != head, "another head")
        seen.until(lambda: upstream(seen)["behind"] == 0, "nothing behind after WAL without changes for consumers")
        assert seen.log.state().position == position
    db.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
