"""One Postgres, one random history, two official caches: one in its own Postgres mode, one behind our endpoint.

Their replicas must hold the same tables, the same column types and the same rows, at first sync and after every round
of live changes. What the official mode gets wrong is checked against the right value in `test_postgres_right_values`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg
import pytest

from protocol.data_types import zql_type
from tests.support.fix_zero_cache import zero_caches
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_workload import PUBLICATION, SETUP, Workload
from tests.support.replica import Replica
from tests.support.serving import Serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SEED = int(os.environ.get("DIFFERENTIAL_SEED", "7"))
ROUNDS = int(os.environ.get("DIFFERENTIAL_ROUNDS", "4"))
TRANSACTIONS = int(os.environ.get("DIFFERENTIAL_TRANSACTIONS", "40"))
OFFICIAL = "official"

Content = dict[str, tuple[dict[str, str], list[tuple[object, ...]]]]


@dataclass(slots=True)
class Pair:
    """The database, and what two caches made of it."""

    db: psycopg.Connection[tuple[object, ...]]
    workload: Workload
    official: Replica
    ours: Replica

    def run(self, statements: list[str]) -> None:
        """One transaction."""
        with self.db.transaction():
            for statement in statements:
                self.db.execute(statement.encode())

    def settle(self) -> None:
        """Wait until both replicas have everything so far."""
        found = self.db.execute("UPDATE marker SET n = n + 1 RETURNING n").fetchone()
        assert found is not None
        for replica in (self.official, self.ours):
            replica.wait_until(f"SELECT n = {found[0]} FROM marker", seconds=60)


@pytest.fixture(scope="module")
def pair(logical_postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("differential")
    url = logical_postgres.create_database("store")
    workload = Workload(SEED)
    with ExitStack() as stack:
        db = stack.enter_context(psycopg.connect(url, autocommit=True))
        for statement in (*SETUP, *PUBLICATION, *workload.first_rows()):
            db.execute(statement.encode())
        make_cache = stack.enter_context(zero_caches(logical_postgres, folder))
        official = make_cache(url, app_id=OFFICIAL, ZERO_UPSTREAM_TYPE="pg", ZERO_APP_PUBLICATIONS="common,lists")
        settings = {"dsn": url, "publication": "common,lists"}
        endpoint = stack.enter_context(Serving("postgres", settings, folder / "state"))
        ours = make_cache(endpoint.stream_url)
        official.launch()
        endpoint.start()
        stack.callback(lambda: print(endpoint.process.tail(60)))
        ours.start()
        official.wait_until_ready()
        yield Pair(db, workload, official.replica, ours.replica)


def content(replica: Replica) -> Content:
    """Every table of the store: its synced columns with their types, and its rows, JSON as values."""
    found: Content = {}
    for table in sorted(replica.tables()):
        if table.startswith((OFFICIAL, "zero.", "zero_0.")):
            continue
        columns = {name: kind for name, kind in sorted(replica.columns(table).items()) if _is_synced(kind)}
        names = ", ".join(f'"{name}"' for name in columns)
        rows = replica.query(f'SELECT {names} FROM "{table}"')
        values = [tuple(map(_value, row, columns.values())) for row in rows]
        found[table] = columns, sorted(values, key=repr)
    return found


def _is_synced(kind: str) -> bool:
    return _zql_type(kind) is not None


def _zql_type(kind: str) -> str | None:
    name, *attributes = kind.split("|")
    return zql_type(name, is_enum="TEXT_ENUM" in attributes, is_array="TEXT_ARRAY" in attributes)


def _value(value: object, kind: str) -> object:
    return json.loads(value) if isinstance(value, str) and _zql_type(kind) == "json" else value


def difference(pair: Pair) -> str:
    """The first few places where the replicas differ."""
    official, ours = content(pair.official), content(pair.ours)
    found = [f"tables {sorted(official.keys() ^ ours.keys())}"] if official.keys() != ours.keys() else []
    for table in official.keys() & ours.keys():
        (types, rows), (our_types, our_rows) = official[table], ours[table]
        if types != our_types:
            found.append(f"{table}: columns {set(types.items()) ^ set(our_types.items())}")
        elif rows != our_rows:
            found.append(f"{table}: {_cells(types, _only(rows, our_rows), _only(our_rows, rows))}")
    return "\n".join(found)


def _only(rows: list[tuple[object, ...]], others: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    known = set(map(repr, others))
    return [row for row in rows if repr(row) not in known]


def _cells(types: dict[str, str], official: list[tuple[object, ...]], ours: list[tuple[object, ...]]) -> str:
    """Which columns differ, if the same rows are there; else which rows."""
    if len(official) != len(ours):
        return f"official {official[:3]}, ours {ours[:3]}"
    columns = zip(types.items(), zip(*official, strict=True), zip(*ours, strict=True), strict=True)
    return ", ".join(f"{column}: official {a}, ours {b}" for column, a, b in columns if a != b)


def test_first_sync_is_the_same(pair: Pair) -> None:
    pair.settle()
    assert difference(pair) == ""
    assert len(content(pair.ours)["zoo"][1]) == 40


def test_after_every_round_of_changes_the_replicas_are_the_same(pair: Pair) -> None:
    for number in range(ROUNDS):
        for statements in pair.workload.transactions(TRANSACTIONS):
            pair.run(statements)
        pair.settle()
        assert difference(pair) == "", f"seed {SEED}, round {number}"
