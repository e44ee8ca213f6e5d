"""The adapter as the pipeline meets it: settings, errors, waiting, acknowledging, closing."""

import pickle
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from adapters.sqlite import SqliteAdapter
from adapters.sqlite.capture import install
from adapters.sqlite.connection import translated_errors
from adapters.sqlite.settings import Selection
from changesource_sdk.adapter import Acknowledging, Adapter, Closing, Insert, Transaction
from changesource_sdk.errors import AdapterError, ChangesourceError, ConfigurationError, ResyncRequired


def test_it_keeps_the_contract_and_travels(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    adapter: Adapter = pickle.loads(pickle.dumps(SqliteAdapter(path, poll="0.02")))
    assert [table.full_name for table in adapter.tables()] == ["t"]
    assert isinstance(adapter, Acknowledging)
    assert isinstance(adapter, Closing)


def test_a_commit_wakes_a_waiting_reader(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    adapter = SqliteAdapter(path)
    snapshot = adapter.snapshot()
    received: list[Transaction] = []
    arrived = threading.Event()

    def follow() -> None:
        for transaction in adapter.changes(snapshot.position):
            received.append(transaction)
            arrived.set()

    thread = threading.Thread(target=follow)
    thread.start()
    db.execute("INSERT INTO t VALUES (1)")
    assert arrived.wait(60)
    adapter.close()
    thread.join(60)
    assert not thread.is_alive()
    assert list(received[0].changes) == [Insert("t", {"id": 1})]


def test_acknowledged_keys_are_forgotten(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    adapter = SqliteAdapter(path)
    stream = adapter.changes(adapter.snapshot().position)
    db.execute("INSERT INTO t VALUES (1), (2), (3)")
    position = next(stream).position
    adapter.acknowledge(position)
    assert db.execute("SELECT count(*) FROM _changesource_changes").fetchone() == (1,)
    db.execute("INSERT INTO t VALUES (4)")
    assert list(next(SqliteAdapter(path).changes(position)).changes) == [Insert("t", {"id": 4})]


def test_a_file_that_is_replaced_while_it_is_followed_is_noticed(
    db: sqlite3.Connection, path: str, tmp_path: Path
) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    adapter = SqliteAdapter(path)
    stream = adapter.changes(adapter.snapshot().position)
    db.execute("INSERT INTO t VALUES (1)")
    position = next(stream).position
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as replacement, replacement:
        replacement.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    db.close()
    for suffix in ("-wal", "-shm"):
        Path(path + suffix).unlink(missing_ok=True)  # SQLite would apply them to the new file
    other.replace(path)
    assert list(stream) == [], "the reader opens the file again"
    with pytest.raises(ResyncRequired, match="the database file was replaced"):
        next(adapter.changes(position))


def test_a_file_that_is_deleted_while_it_is_followed_is_noticed(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    adapter = SqliteAdapter(path)
    position = adapter.snapshot().position
    stream = adapter.changes(position)
    db.execute("INSERT INTO t VALUES (1)")
    next(stream)
    db.close()
    Path(path).unlink()
    assert list(stream) == []
    with pytest.raises(AdapterError, match="no database file"):
        next(adapter.changes(position))


@pytest.mark.parametrize("is_own", [True, False])
def test_contents_that_are_restored_while_they_are_followed_are_noticed(
    db: sqlite3.Connection, path: str, tmp_path: Path, is_own: bool
) -> None:
    """SQLite's backup interface writes into the same file: an older copy of it, or another database."""
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    adapter = SqliteAdapter(path)
    stream = adapter.changes(adapter.snapshot().position)
    db.execute("INSERT INTO t VALUES (1)")
    next(stream)
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        if is_own:
            db.backup(copy)
        else:
            copy.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)")
        db.execute("INSERT INTO t VALUES (2)")
        next(stream)
        copy.backup(db)
    with pytest.raises(ResyncRequired, match="earlier state" if is_own else "replaced"):
        next(stream)


def test_a_busy_database_only_puts_forgetting_off(
    db: sqlite3.Connection, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.sqlite.adapter.ACKNOWLEDGE_AFTER_S", 3600)
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    adapter = SqliteAdapter(path)
    stream = adapter.changes(adapter.snapshot().position)
    db.execute("INSERT INTO t VALUES (1), (2)")
    position = next(stream).position
    db.execute("BEGIN IMMEDIATE")
    adapter.acknowledge(position)
    db.execute("COMMIT")
    adapter.acknowledge(position)
    assert db.execute("SELECT count(*) FROM _changesource_changes").fetchone() == (2,)
    monkeypatch.setattr("adapters.sqlite.adapter.ACKNOWLEDGE_AFTER_S", 0)
    adapter.acknowledge(position)
    assert db.execute("SELECT count(*) FROM _changesource_changes").fetchone() == (1,)


def test_uninstalling_makes_a_later_reader_start_over(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    adapter = SqliteAdapter(path)
    position = adapter.snapshot().position
    adapter.uninstall()
    with pytest.raises(ChangesourceError, match="position-lost"):
        next(adapter.changes(position))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AdapterError) as refused:
        SqliteAdapter(str(tmp_path / "nothing.db")).tables()
    assert (refused.value.code, refused.value.where) == ("database-not-found", str(tmp_path / "nothing.db"))


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but longer than a header has to be" * 50)
    with pytest.raises(AdapterError) as refused:
        SqliteAdapter(str(tmp_path / "text.db")).snapshot()
    assert refused.value.code == "not-a-database"


def test_a_database_that_cannot_be_written_is_named(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    with pytest.raises(AdapterError) as refused, translated_errors(path):
        install(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None), Selection())
    assert refused.value.code == "database-read-only"


def test_a_writer_that_never_ends_is_named(db: sqlite3.Connection, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.sqlite.connection.BUSY_TIMEOUT_S", 0.01)
    db.execute("BEGIN IMMEDIATE")
    with pytest.raises(AdapterError) as refused:
        SqliteAdapter(path).tables()
    assert refused.value.code == "database-busy"


def test_a_text_that_is_not_utf8_is_named(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    db.execute("INSERT INTO t VALUES (1, CAST(x'ff' AS TEXT))")
    with pytest.raises(AdapterError) as refused:
        [list(part.rows()) for part in SqliteAdapter(path).snapshot().partitions]
    assert refused.value.code == "text-not-utf8"


@pytest.mark.parametrize(
    "settings",
    [{"poll": "soon"}, {"poll": 0}, {"poll": "nan"}, {"dates": "iso"}, {"exact_replace": "perhaps"}],
)
def test_a_bad_setting_is_named_with_what_is_good(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        SqliteAdapter("app.db", **settings)
    assert refused.value.code == "bad-setting"
    assert refused.value.where in settings
