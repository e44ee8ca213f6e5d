"""Nobody but its owner reads a state directory, and one of an earlier version is narrowed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from changesource_sdk.adapter import Insert
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from reference_cache.replica.writing.writer import connect_writer
from reference_cache.view_syncer.cvr.file import CvrFile
from service_kit.private_files import private_file
from tests.changesource_sdk.endpoint.written_state import WrittenState


def readable_by_others(folder: Path) -> list[str]:
    return [str(path) for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]


def test_everything_in_a_state_directory_is_its_owners(tmp_path: Path) -> None:
    store = SqliteLogStore(tmp_path / "state")
    with store.claim(), store.compacting():
        state = WrittenState(store, spill_bytes=1000)
        state.snapshot([{"id": "1", "title": "one"}])
        state.commit(*(Insert("issue", {"id": str(number), "title": "x" * 100}) for number in range(100)))
        listener, coordination = store.listen(), store.open_coordination()
        assert coordination.consumers() == []
        store.requests.ask_prune("01")
        store.reports.leave("pipeline", {"state": "running"})
        files = {path.name for path in (tmp_path / "state").rglob("*") if path.is_file()}
        assert {"log.sqlite", "log.sqlite-wal", "subscribers.sqlite", "serve.lock", "prune.json"} <= files
        assert list(store.layout.segments.iterdir())
        assert readable_by_others(tmp_path / "state") == []
        listener.close()
        coordination.close()
        state.close()


def test_what_an_earlier_version_left_is_narrowed_and_still_opens(tmp_path: Path) -> None:
    store = SqliteLogStore(tmp_path / "state")
    state = WrittenState(store)
    watermark = state.snapshot([{"id": "1", "title": "one"}])
    state.close()
    for path in (tmp_path / "state").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    again = WrittenState(store)
    assert again.insert("2") > watermark
    assert store.layout.log.stat().st_mode & 0o777 == 0o600
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in (store.layout.spool, store.layout.segments))
    again.close()


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    for name in ("root", "shared"):
        (tmp_path / name).mkdir(mode=0o755)
    StateDirectory(tmp_path / "root", tmp_path / "shared").create()
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("root", "shared")] == [0o755, 0o755]
    assert (tmp_path / "root" / "stages").stat().st_mode & 0o777 == 0o700


def test_making_an_open_database_private_leaves_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE t (a)")
    holder.execute("BEGIN EXCLUSIVE")
    private_file(path)
    locked = Path("/proc/locks").read_text()
    assert f":{path.stat().st_ino} " in locked
    holder.close()


def test_replicas_and_client_records_are_private(tmp_path: Path) -> None:
    CvrFile(tmp_path / "cvr.db").connection.close()
    replica = connect_writer(tmp_path / "replica.db")
    replica.execute("CREATE TABLE t (a)")
    assert [path for path in readable_by_others(tmp_path) if path != str(tmp_path)] == []
    replica.close()
