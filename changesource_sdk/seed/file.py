"""The finished replica file: its checksum, its replica version, and its installation at the path of a cache.

A file is built without a replica version, so that no cache can start from it. Each copy gets a version of its own
(`assign_version`) before it is installed: a second replica with the version of a first is the one mistake that
zero-cache does not notice.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.files.layout import sync_directory
from changesource_sdk.errors import StateError
from changesource_sdk.seed.layout import CONFIG, EVENTS, STATE, publications_text
from changesource_sdk.seed.pieces import sqlite_errors
from service_kit.private_files import opener
from service_kit.sqlite import connect

LEFTOVERS = ("-wal", "-wal2", "-shm", "-journal")
"""Files of SQLite next to a replica. With those of another replica, a new file would be read wrongly."""


def assign_version(path: Path, app_id: str, publications: Iterable[str], version: str, now_ms: float) -> None:
    """Make a built file the replica of this version: its replica version and its state version."""
    context = {
        "appID": app_id,
        "taskID": "changesource seed",
        "hostname": socket.gethostname(),
        "timestamp": datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
    }
    with sqlite_errors(path), closing(connect(path, mode="rw")) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("BEGIN IMMEDIATE")
        for table in (CONFIG, STATE):
            connection.execute(f"DELETE FROM {table}")
        connection.execute(
            f"INSERT INTO {CONFIG} (replicaVersion, publications, initialSyncContext) VALUES (?, ?, ?)",
            (version, publications_text(publications), json.dumps(context, separators=(",", ":"))),
        )
        connection.execute(f"INSERT INTO {STATE} (stateVersion, writeTimeMs) VALUES (?, ?)", (version, int(now_ms)))
        connection.execute(f"INSERT INTO {EVENTS} (event) VALUES ('sync')")
        connection.execute("COMMIT")


def replica_version(path: Path) -> str | None:
    """Return the replica version of a file; None if none was assigned yet. Raises `StateError` for other files."""
    try:
        with closing(connect(path, mode="ro")) as connection:
            row = connection.execute(f"SELECT replicaVersion FROM {CONFIG}").fetchone()
    except sqlite3.Error as error:
        raise StateError("no-replica", f"the file is no replica: {error}", str(path), "give another file") from None
    return None if row is None else str(row[0])


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with disk_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_target(path: Path) -> None:
    """Raise `StateError` if a replica is at this path already: a seed never replaces one."""
    if path.exists():
        raise StateError(
            "replica-exists",
            "there is a replica already, which the cache can continue with",
            str(path),
            "start the cache without a seed; or stop it, delete the replica, and run this again",
        )


def install(built: Path, path: Path) -> None:
    """Make a complete file durable and rename it to the path of the replica."""
    with disk_errors(path):
        for suffix in LEFTOVERS:
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        descriptor = os.open(built, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        built.replace(path)
        sync_directory(path.parent)


def write_checksum(path: Path) -> Path:
    """Write `FILE.sha256`, in the form that `sha256sum --check` reads, and return its path."""
    checksum = path.with_name(path.name + ".sha256")
    with disk_errors(checksum), open(checksum, "w", opener=opener) as file:
        file.write(f"{sha256(path)}  {path.name}\n")
    return checksum
