"""Read access to a replica: connections and the current state.

The replicator process writes the file; any number of readers open it. Readers see whole transactions only.

    replica = open_replica(path)
    connection = replica.connect()                  # read only; `Snapshotter` holds a version
    replica.state()                                 # ReplicaState(replica_version, version, log_start)
    schema = read_schema(connection)
    changes_between(connection, schema, "01", "02")
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from reference_cache.replica.errors import UnusableReplica
from reference_cache.replica.stored_catalog import STATE, ReplicaState, read_state
from reference_cache.zql.tables.sqlite_snapshot import tune
from service_kit.sqlite import connect

BUSY_SECONDS = 60.0
"""How long a reader waits for a lock; in WAL mode it waits only for recovery after a crash."""


class Replica:
    """A replica whose initial sync is complete. The caller closes its connections."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = self.connect()
        try:
            self._connection.execute(f"SELECT 1 FROM {STATE}").fetchone()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise UnusableReplica(f"{path} is no replica of this cache ({error}); move it away") from None

    def connect(self) -> sqlite3.Connection:
        """A read-only connection, usable from any thread, one at a time."""
        connection = connect(self.path, mode="ro", busy_seconds=BUSY_SECONDS, cached_statements=512)
        tune(connection)
        return connection

    def state(self) -> ReplicaState:
        """The newest committed state."""
        return read_state(self._connection)

    def close(self) -> None:
        """Close the connection that `state` uses."""
        self._connection.close()


def open_replica(path: Path) -> Replica:
    """Open a complete replica; raises `FileNotFoundError` before the initial sync is complete, `UnusableReplica`."""
    if not path.exists():
        raise FileNotFoundError(f"there is no replica at {path} yet: its initial sync is not complete")
    return Replica(path)
