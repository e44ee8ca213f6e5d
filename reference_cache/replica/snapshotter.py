"""Consistent reads of a replica that another process writes: two connections that alternate between its versions.

    snapshots = Snapshotter(replica, interrupts)
    read_state(snapshots.current).version           # the newest version, and the same one until `advance`
    after = snapshots.hold_next()                   # the version that is the newest now
    ...                                             # compare the two versions; push the changes between them
    snapshots.advance()                             # `current` reads the newer version

The replicator does not wait for readers. So the next version is held before the change log is read up to it: otherwise
more commits could arrive in between.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from reference_cache.replica.replica import Replica

STEPS_BETWEEN_CLOCK_READINGS = 4000
"""Instructions of SQLite's virtual machine between two calls of `interrupts`: some tens of microseconds."""


class Snapshotter:
    """One reader's connections to a replica. Invariant: `current` has an open read transaction.

    SQLite calls `interrupts` while a statement of one of the connections runs; a true result interrupts the statement.
    The connections may be used from any thread, one at a time.
    """

    def __init__(self, replica: Replica, interrupts: Callable[[], int]) -> None:
        # Reads the present version. `advance` exchanges it with the one below.
        self.current = replica.connect()
        # Reads the next version, after `hold_next`.
        self._next = replica.connect()
        for connection in (self.current, self._next):
            connection.set_progress_handler(interrupts, STEPS_BETWEEN_CLOCK_READINGS)
        hold_snapshot(self.current)

    def hold_next(self) -> sqlite3.Connection:
        """Hold the replica's newest version, and return the connection that reads it.

        Call `advance` or `release_next` before the next call.
        """
        hold_snapshot(self._next)
        return self._next

    def release_next(self) -> None:
        """Release the version that `hold_next` holds; `current` stays the same."""
        release_snapshot(self._next)

    def advance(self) -> None:
        """Make the version that `hold_next` holds the current one, and release the former one."""
        release_snapshot(self.current)
        self.current, self._next = self._next, self.current

    def close(self) -> None:
        """Close both connections."""
        self.current.close()
        self._next.close()


def hold_snapshot(connection: sqlite3.Connection) -> None:
    """Open a read transaction: the connection reads what is committed now until `release_snapshot`."""
    connection.execute("BEGIN")
    # BEGIN is deferred: SQLite takes the snapshot with the first read.
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()


def release_snapshot(connection: sqlite3.Connection) -> None:
    """End the read transaction."""
    connection.execute("COMMIT")
