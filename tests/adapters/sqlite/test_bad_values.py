"""Values that do not fit, and the distance to the upstream, with a real SQLite database and a running pipeline."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from adapters.sqlite import SqliteAdapter
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.pipeline.inline import InlineRunner
from tests.changesource_sdk.pipeline.runner_fixtures import Watched, watched


def letters(seen: Watched) -> set[str]:
    return {letter.row for letter in seen.log.kept_aside().letters}


def test_a_bad_value_is_left_out_until_it_is_corrected(tmp_path: Path) -> None:
    path, state = tmp_path / "app.db", SqliteLogStore(tmp_path / "state")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, done BOOLEAN)")
        db.execute("INSERT INTO item VALUES (1, 1), (2, 'perhaps')")
        runner = InlineRunner(lambda: SqliteAdapter(str(path)), state, on_bad_value="dead-letter")
        with watched(runner, state) as seen:
            seen.until(lambda: letters(seen) == {"id=2"}, "the letter of the snapshot")
            db.execute("UPDATE item SET done = 'never' WHERE id = 1")
            seen.until(lambda: letters(seen) == {"id=1", "id=2"}, "the letter of the change")
            assert any(b'"delete"' in payload for payload in seen.log_payloads())
            db.execute("UPDATE item SET done = 0")
            seen.until(lambda: letters(seen) == set(), "both rows")
            assert sum(b'"insert"' in payload for payload in seen.log_payloads()) == 2


def test_a_corrected_value_lets_a_stopped_stream_go_on(tmp_path: Path) -> None:
    path, state = tmp_path / "app.db", SqliteLogStore(tmp_path / "state")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, done BOOLEAN)")
        with watched(InlineRunner(lambda: SqliteAdapter(str(path)), state), state) as seen:
            seen.until_generation(1)
            db.execute("INSERT INTO item VALUES (1, 'perhaps')")
            seen.until(lambda: seen.error_code() == "value-does-not-fit", "the error")
            db.execute("UPDATE item SET done = 1")
            seen.until(lambda: any(b'"insert"' in payload for payload in seen.log_payloads()), "the row")


def test_the_head_is_the_last_recorded_key(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE item (id INTEGER PRIMARY KEY)")
        adapter = SqliteAdapter(str(path))
        snapshot = adapter.snapshot()
        assert adapter.distance(snapshot.position, adapter.head()) == 0
        db.execute("INSERT INTO item VALUES (1), (2)")
        assert adapter.distance(snapshot.position, adapter.head()) == 2
        assert snapshot.close is not None
        snapshot.close()
