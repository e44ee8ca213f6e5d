"""The SQLite replica that zero-cache keeps, read from outside without disturbing it.

The replica is in a journal mode (wal2) that only zero-cache's own SQLite build understands, so a small Node
process reads it for us. Contract: read-only; every read opens the file anew, so a replica that was deleted and
made again (a reset) is followed. Waits end as soon as the condition holds. Values come back exactly: int,
float, str, bytes, None.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.tools import node, node_modules
from tests.support.waiting import LONGEST_WAIT_S, until

Row = tuple[object, ...]
READER = Path(__file__).parents[1] / "node" / "replica_reader.mjs"


class ReplicaError(RuntimeError):
    """The replica is not there, or not in the expected shape, at this moment."""


class ReplicaReader:
    """The Node process that answers queries, one at a time."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process = subprocess.Popen(
            [node(), READER],
            env={**os.environ, "TEST_NODE_MODULES": str(node_modules())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        atexit.register(self.close)

    def query(self, path: Path, sql: str, parameters: Sequence[object]) -> list[Row]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(
                json.dumps({"path": str(path), "sql": sql, "parameters": list(parameters)}) + "\n"
            )
            self._process.stdin.flush()
            reply = json.loads(self._process.stdout.readline())
        if "error" in reply:
            raise ReplicaError(f"{sql}: {reply['error']}")
        return [tuple(_value(text) for text in row) for row in reply["rows"]]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@functools.cache
def _reader() -> ReplicaReader:
    return ReplicaReader()


def _value(text: str | None) -> object:
    if text is None:
        return None
    kind, rest = text[0], text[1:]
    match kind:
        case "i":
            return int(rest)
        case "r":
            return float(rest)
        case "b":
            return bytes.fromhex(rest)
        case _:
            return rest


class Replica:
    """The replica at a path, whether it exists already or not."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        return _reader().query(self.path, sql, parameters)

    def rows(self, table: str, columns: Sequence[str], order: str | None = None) -> list[Row]:
        """All rows of a table in key order, only the columns of the store (zero-cache adds its own)."""
        names = ", ".join(f'"{column}"' for column in columns)
        return self.query(f'SELECT {names} FROM "{table}" ORDER BY "{order or columns[0]}"')

    def tables(self) -> set[str]:
        """Tables of the store and the app; zero-cache's own bookkeeping is left out."""
        found = self.query("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {str(name) for (name,) in found if not str(name).startswith(("_zero.", "sqlite_"))}

    def columns(self, table: str) -> dict[str, str]:
        """Column name → type as declared by zero-cache, without its own `_0_version`."""
        found = self.query("SELECT name, type FROM pragma_table_info(?)", (table,))
        return {str(name): str(kind) for name, kind in found if name != "_0_version"}

    def indexes(self, table: str) -> dict[str, list[str]]:
        """Index name → its columns."""
        sql = """
            SELECT list.name, info.name FROM pragma_index_list(?) AS list, pragma_index_info(list.name) AS info
            ORDER BY list.name, info.seqno
        """
        found: dict[str, list[str]] = {}
        for index, column in self.query(sql, (table,)):
            found.setdefault(str(index), []).append(str(column))
        return found

    def version(self) -> str:
        """Watermark of the initial sync this replica stems from."""
        return str(self.query('SELECT replicaVersion FROM "_zero.replicationConfig"')[0][0])

    def watermark(self) -> str:
        """Watermark of the last transaction applied."""
        return str(self.query('SELECT stateVersion FROM "_zero.replicationState"')[0][0])

    def try_query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row] | None:
        """As `query`, but None while the file or the table is not there (yet, or in mid-reset)."""
        try:
            return self.query(sql, parameters)
        except ReplicaError:
            return None

    def wait_until(self, sql: str, *, seconds: float = LONGEST_WAIT_S) -> None:
        """Wait until a query gives one true value."""
        until(lambda: (self.try_query(sql) or [(0,)])[0][0], sql, seconds=seconds)

    def wait_for_watermark(self, watermark: str, *, seconds: float = LONGEST_WAIT_S) -> None:
        """Wait until everything up to and including this watermark is applied."""

        def reached() -> bool:
            found = self.try_query('SELECT stateVersion FROM "_zero.replicationState"')
            return found is not None and str(found[0][0]) >= watermark

        until(reached, f"replica at {watermark}", seconds=seconds)


class Moved:
    """Whether it is worth comparing a replica again: it applied something since the last time, or a while has passed.

    A comparison reads every row on both sides; made at each look, it would take the processor from those it waits for.
    """

    PAUSE_S = 1.0

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._seen: list[Row] | None = None
        self._at = float("-inf")

    def __call__(self) -> bool:
        found = self._replica.try_query('SELECT stateVersion FROM "_zero.replicationState"')
        if found == self._seen and time.monotonic() < self._at + self.PAUSE_S:
            return False
        self._seen, self._at = found, time.monotonic()
        return True
