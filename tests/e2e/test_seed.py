"""The official zero-cache started on a seed: no initial sync, live changes, and the replica that it would have made.

Differences that must be, and are left out of the comparison: the replica version and the versions of rows (every
replica has its own), times, `initialSyncContext`, which names the process that made the replica, and the numbers of
rows in the file (seeds are in key order), which are in the samples of `sqlite_stat4`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.fixtures.serving import MakeServing, MakeStore
from tests.support.fixtures.zero_cache import MakeZeroCache, MakeZeroClient
from tests.support.peers.replica import Replica
from tests.support.peers.serving import Serving
from tests.support.tools import REPOSITORY
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore, wait_until_same

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TABLES = (
    """CREATE TABLE issue (id TEXT PRIMARY KEY, title TEXT NOT NULL, open BOOLEAN, n INTEGER, f REAL, j JSON,
    t TIMESTAMP, d DATE, blob BLOB, v VARCHAR(20), x NUMERIC)""",
    "CREATE TABLE link (a INTEGER, b TEXT, note TEXT, PRIMARY KEY (a, b))",
    "CREATE TABLE empty (id INTEGER PRIMARY KEY, x TEXT UNIQUE)",
    "CREATE TABLE old_name (id INTEGER PRIMARY KEY, v REAL)",
    "CREATE INDEX issue_n ON issue (n DESC, title)",
)
AFTER_THE_SNAPSHOT = (
    ("UPDATE issue SET title = 'changed', j = '[1, 2]' WHERE id = 'k0003'", "DELETE FROM issue WHERE id = 'k0004'"),
    ("UPDATE link SET a = a + 500 WHERE a < 5", "INSERT INTO empty VALUES (1, 'x')"),
    ("ALTER TABLE link ADD COLUMN extra TEXT DEFAULT 'none'", "ALTER TABLE old_name RENAME TO new_name"),
    ("INSERT INTO link VALUES (900, 'z', NULL, 'own')",),
)
#: Columns whose values differ from replica to replica. `sample` of the statistics has the numbers of rows in the file.
OF_ONE_REPLICA = ("_0_version", "replicaVersion", "initialSyncContext", "sample")
#: What zero-cache runs by itself about 30 s after its replica has the changes.
PURGE = """DELETE FROM "zero_0/cdc"."changeLog"
WHERE watermark < (SELECT max(watermark) FROM "zero_0/cdc"."changeLog")"""
LIVE = (
    ("INSERT INTO issue (id, title, n) VALUES ('live', 'Live', 9007199254740993)",),
    ("UPDATE issue SET open = NULL WHERE id = 'k0007'", "DELETE FROM link WHERE a = 900"),
    ("ALTER TABLE empty ADD COLUMN more INTEGER",),
    ("INSERT INTO empty VALUES (2, NULL, 7)",),
)


def fill(data: SqliteStore) -> None:
    rows = []
    for number in range(1200):
        # Not in key order: runs of the pieces must be merged.
        key = f"k{number * 7919 % 1200:04d}"
        document = json.dumps({"n": number, "ä": [None, True]}) if number % 3 else None
        times = ("2024-02-29 10:00:00", "1969-12-31") if number % 2 else (None, None)
        values = (f"title {number}", number % 2, number - 600, number / 7, document, *times, b"\x00\xff", "v", 5)
        rows.append((key, *values))
    data.insert("issue", rows)
    data.insert("link", [(number, f"b{number}", None) for number in range(10)])
    data.insert("old_name", [(number, number / 2) for number in range(5)])


def changesource(*arguments: object) -> dict[str, object]:
    """Run a command that must succeed; its JSON output."""
    command = [sys.executable, "-m", "changesource_cli", *map(str, arguments), "--json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return document


def run_and_log(data: SqliteStore, endpoint: Serving, statements: tuple[str, ...]) -> None:
    """Run one transaction and wait until the log has it: the adapter sees a schema change with the next rows."""
    before = endpoint.status()["log"]["head"]
    data.run(*statements)
    until(lambda: endpoint.status()["log"]["head"] > before, "the transaction in the log")


def initial_syncs(endpoint: Serving) -> float:
    found = re.search(r'changesource_connections_total\{kind="initial"\} (\S+)', endpoint.get("/metrics")[1])
    return float(found[1]) if found else 0.0


def dump(replica: Replica) -> dict[str, object]:
    """Everything in a replica but the differences that must be."""
    schema = {row[:3]: row[3] for row in replica.query("SELECT type, name, tbl_name, sql FROM sqlite_master")}
    content: dict[str, object] = {"schema": schema}
    for kind, name, _ in schema:
        if kind != "table" or name in ("_zero.replicationState", "_zero.runtimeEvents"):
            continue
        columns = [str(column) for (column,) in replica.query("SELECT name FROM pragma_table_info(?)", (name,))]
        shown = [each for each in columns if each not in OF_ONE_REPLICA]
        names = ", ".join(f'"{each}", typeof("{each}")' for each in shown)
        content[str(name)] = sorted(replica.query(f'SELECT {names} FROM "{name}"'), key=repr)
    content["events"] = replica.query('SELECT event FROM "_zero.runtimeEvents" ORDER BY 1')
    content["pages"] = replica.query("SELECT page_size, auto_vacuum FROM pragma_page_size, pragma_auto_vacuum")
    for pragma in ("user_version", "application_id", "encoding", "journal_mode"):
        content[pragma] = replica.query(f"PRAGMA {pragma}")
    return content


def without_purged(content: dict[str, object]) -> dict[str, object]:
    """The same without zero-cache's log of recent changes, and what depends on when it was last analysed."""
    left_out = ("_zero.changeLog2", "sqlite_stat1", "sqlite_stat4")
    return {name: each for name, each in content.items() if name not in left_out}


def test_a_cache_started_on_a_seed_is_the_cache_that_synced_by_itself(
    store: MakeStore, serving: MakeServing, zero_cache: MakeZeroCache, zero_client: MakeZeroClient, tmp_path: Path
) -> None:
    data = store(*TABLES)
    fill(data)
    endpoint = serving(data).start()
    for statements in AFTER_THE_SNAPSHOT:
        run_and_log(data, endpoint, statements)
    seeds = tmp_path / "seeds"
    made = changesource(
        "seed", "--state", endpoint.state, "--upload", seeds, "--runner", "inline", "--permissions", "allow-all"
    )
    assert made["rows"] == sum(len(data.rows(table)) for table in data.tables())

    # A cache that syncs now gets the snapshot at the same head, and declares tables as they are there.
    changesource("compact", "--state", endpoint.state, "--runner", "inline")
    until(lambda: endpoint.status()["log"]["snapshot"] == made["watermark"], "the compacted snapshot")
    (tmp_path / "own").mkdir()
    itself = zero_cache(endpoint.stream_url, own_folder=tmp_path / "own").start()
    synced = initial_syncs(endpoint)

    seeded = zero_cache(endpoint.stream_url)
    fetched = changesource("fetch-seed", seeds, seeded.replica.path, "--endpoint", endpoint.stream_url)
    seeded.start()
    assert initial_syncs(endpoint) == synced
    assert seeded.replica.version() == fetched["replicaVersion"] == seeded.replica.watermark()
    assert dump(seeded.replica) == dump(itself.replica)

    for statements in LIVE:
        data.run(*statements)
        wait_until_same(data, seeded.replica)
        wait_until_same(data, itself.replica)
    assert without_purged(dump(seeded.replica)) == without_purged(dump(itself.replica))
    itself.stop()

    # The same seed again, over a change DB that has seen a copy of it and has purged what that copy needed.
    seeded.stop()
    with psycopg.connect(seeded.database_url, autocommit=True) as connection:
        connection.execute(PURGE)
    for suffix in ("", "-wal", "-wal2", "-shm"):
        seeded.replica.path.with_name(seeded.replica.path.name + suffix).unlink(missing_ok=True)
    again = changesource("fetch-seed", seeds, seeded.replica.path, "--endpoint", endpoint.stream_url)
    assert again["replicaVersion"] != fetched["replicaVersion"]
    seeded.start()
    wait_until_same(data, seeded.replica)

    # A second cache from the same seed, next to the first.
    (tmp_path / "second").mkdir()
    second = zero_cache(endpoint.stream_url, own_folder=tmp_path / "second")
    changesource("fetch-seed", seeds, second.replica.path, "--state", endpoint.state)
    second.start()
    client = zero_client(second, {"new_name": {"id": "number", "v": "number"}})
    shown = [{"id": number, "v": number / 2} for number in range(5)]
    client.wait_for_rows("new_name", shown)
    data.run("INSERT INTO empty VALUES (3, 'both', 8)", "INSERT INTO new_name VALUES (77, 1.5)")
    client.wait_for_rows("new_name", [*shown, {"id": 77, "v": 1.5}])
    for cache in (seeded, second):
        wait_until_same(data, cache.replica)
    assert initial_syncs(endpoint) == synced
