"""One Postgres, one random history, two official caches: one in its own Postgres mode, one behind our endpoint.

Their replicas must hold the same tables, the same column types and the same rows, at first sync and after every round
of live changes. What the official mode gets wrong, or exits over, lies in a schema that only our endpoint follows, and
is held to the right value: the same at first sync and live.
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
from tests.support.fixtures.zero_cache import MakeZeroClient, zero_caches
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.push_processor import push
from tests.support.peers.replica import Replica
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing
from tests.support.peers.zero_cache import ZeroCache
from tests.support.waiting import until
from tests.support.workloads.postgres import PUBLICATION, SETUP, Workload

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SEED = int(os.environ.get("DIFFERENTIAL_SEED", "7"))
ROUNDS = int(os.environ.get("DIFFERENTIAL_ROUNDS", "4"))
TRANSACTIONS = int(os.environ.get("DIFFERENTIAL_TRANSACTIONS", "40"))
OFFICIAL = "official"

ODD_SETUP = (
    "CREATE SCHEMA odd",
    "CREATE DOMAIN odd.positive AS int CHECK (VALUE > 0)",
    "CREATE TABLE odd.zoo (id int PRIMARY KEY, ta text[], ba bool[], ia int[], d date, bc date, ts timestamp, "
    "inf timestamptz NOT NULL, tmz timetz, ips inet[], ip inet, f4 float4, nan float8, p odd.positive, "
    "raw bytea, place point, twice int GENERATED ALWAYS AS (id * 2) STORED)",
    "CREATE TABLE odd.nothing (id int PRIMARY KEY, a text)",
    "ALTER TABLE odd.nothing REPLICA IDENTITY NOTHING",
    "CREATE TABLE odd.keyless (a int)",
    'CREATE TABLE odd."with space" (id int PRIMARY KEY)',
    "CREATE TABLE odd.retyped (id int PRIMARY KEY, n numeric, d date, ts timestamp)",
    "INSERT INTO odd.retyped VALUES (1, 1.50, '2024-02-29', '2024-02-29 12:00:00')",
    "CREATE TABLE odd.parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE odd.part (id int PRIMARY KEY)",
    "INSERT INTO odd.part VALUES (1), (2)",
    "CREATE PUBLICATION odd FOR TABLES IN SCHEMA odd WITH (publish_via_partition_root = true)",
)
ODD_ROW = """INSERT INTO odd.zoo VALUES (%s, '{a,NULL,"NULL"}', '{t,NULL}', '{1,NULL}', '0999-12-31', '0044-03-15 BC',
    '1969-12-31 23:59:59.123456', 'infinity', '24:00:00+00', '{10.0.0.1,::1/64}', '10.0.0.1', 1.1, 'NaN', 7,
    '\\xdead', '(1,2)')"""
ODD_VALUES: dict[str, object] = {
    "ta": ["a", None, "NULL"],
    "ba": [True, None],
    "ia": [1, None],
    "d": -30610310400000,
    "bc": -63517824000000,
    "ts": -876.544,
    "inf": 8640000000000000,
    "tmz": 0,
    "ips": ["10.0.0.1", "::1/64"],
    "ip": "10.0.0.1",
    "f4": 1.1,
    "nan": None,
    "p": 7,
}

Content = dict[str, tuple[dict[str, str], list[tuple[object, ...]]]]


@dataclass(slots=True)
class Pair:
    """The database, and what two caches made of it."""

    url: str
    db: psycopg.Connection[tuple[object, ...]]
    workload: Workload
    official: Replica
    ours: Replica
    endpoint: SparkServing
    cache: ZeroCache

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
            replica.wait_until(f"SELECT n = {found[0]} FROM marker", seconds=120)


@pytest.fixture(scope="module")
def pair(logical_postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("differential")
    url = logical_postgres.create_database("store")
    workload = Workload(SEED)
    with ExitStack() as stack:
        db = stack.enter_context(psycopg.connect(url, autocommit=True))
        for statement in (*SETUP, *PUBLICATION, *workload.first_rows(), *ODD_SETUP):
            db.execute(statement.encode())
        db.execute(ODD_ROW, [1])
        make_cache = stack.enter_context(zero_caches(logical_postgres, folder))
        official = make_cache(url, app_id=OFFICIAL, ZERO_UPSTREAM_TYPE="pg", ZERO_APP_PUBLICATIONS="common,lists")
        settings = {"dsn": url, "publication": "common,lists,odd"}
        endpoint = stack.enter_context(SparkServing("postgres", settings, folder / "state"))
        ours = make_cache(endpoint.stream_url)
        official.launch()
        endpoint.start(seconds=SPARK_SECONDS)
        stack.callback(lambda: print(endpoint.process.tail(60)))
        ours.start()
        official.wait_until_ready()
        yield Pair(url, db, workload, official.replica, ours.replica, endpoint, ours)


def content(replica: Replica) -> Content:
    """Every table of the store: its synced columns with their types, and its rows, JSON as values."""
    found: Content = {}
    for table in sorted(replica.tables()):
        if table.startswith((OFFICIAL, "zero.", "zero_0.", "odd.")):
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


def wait_until_same(pair: Pair, when: str) -> None:
    """The official mode sends rows of a table that joins a publication later, in the background."""
    last = [difference(pair)]

    def is_same() -> bool:
        last[0] = difference(pair) if last[0] else ""
        return not last[0]

    try:
        until(is_same, "equal replicas")
    except AssertionError as error:
        raise AssertionError(f"{when}: {last[0]}") from error


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
        wait_until_same(pair, f"seed {SEED}, round {number}")


def odd_rows(replica: Replica, table: str) -> list[dict[str, object]]:
    """A table of the schema that only our endpoint follows."""
    columns = replica.columns(f"odd.{table}")
    return [
        {name: _value(value, kind) for (name, kind), value in zip(columns.items(), row, strict=True)}
        for row in replica.rows(f"odd.{table}", list(columns))
    ]


def test_odd_values_are_right_at_first_sync_and_the_same_live(pair: Pair) -> None:
    pair.db.execute(ODD_ROW, [2])
    pair.settle()
    assert odd_rows(pair.ours, "zoo") == [{"id": 1, **ODD_VALUES}, {"id": 2, **ODD_VALUES}]


def test_tables_that_the_official_mode_exits_over_are_reported_and_the_rest_goes_on(pair: Pair) -> None:
    pair.run(["INSERT INTO odd.nothing VALUES (1, 'x')", "INSERT INTO odd.keyless VALUES (5)"])
    pair.settle()
    assert odd_rows(pair.ours, "nothing") == [{"id": 1, "a": "x"}]
    assert odd_rows(pair.ours, "keyless") == [{"a": 5}]
    assert "odd.with space" not in pair.ours.tables()
    told = pair.endpoint.process.tail(200)
    for what in (
        "table odd.with space",
        "table odd.nothing",
        "table odd.keyless",
        "column odd.zoo.place",
        "column odd.zoo.raw",
    ):
        lines = [line for line in told.splitlines() if what in line]
        assert len(lines) == 1, lines


def test_rows_that_a_schema_change_rewrites_or_attaches_arrive(pair: Pair) -> None:
    pair.run(
        [
            "ALTER TABLE odd.retyped ALTER n TYPE text, ALTER d TYPE text",
            "ALTER TABLE odd.retyped ALTER ts TYPE timestamptz USING ts AT TIME ZONE 'Asia/Tokyo'",
        ]
    )
    pair.run(["ALTER TABLE odd.parted ATTACH PARTITION odd.part FOR VALUES FROM (0) TO (10)"])
    pair.settle()
    assert odd_rows(pair.ours, "retyped") == [{"id": 1, "n": "1.50", "d": "2024-02-29", "ts": 1709175600000}]
    assert odd_rows(pair.ours, "parted") == [{"id": 1}, {"id": 2}]


def test_what_the_official_push_processor_writes_arrives_with_its_data(pair: Pair) -> None:
    push(pair.url, [("counter|set", {"id": 1, "n": 41}), ("counter|refuse", {}), ("counter|set", {"id": 1, "n": 42})])
    pair.settle()
    assert pair.ours.rows("counter", ["id", "n"]) == [(1, 42)]
    assert pair.ours.rows("zero_0.clients", ["clientGroupID", "clientID", "lastMutationID"]) == [("group", "client", 3)]
    ((number, result, mutation),) = pair.ours.rows("zero_0.mutations", ["mutationID", "result", "mutation"])
    assert (number, mutation) == (2, None)
    assert json.loads(str(result))["message"] == "refused"


def test_clients_read_what_the_permissions_in_the_database_allow(pair: Pair, zero_client: MakeZeroClient) -> None:
    allowed = {"row": {"select": [["allow", {"type": "and", "conditions": []}]]}}
    document = json.dumps({"tables": {"by_index": allowed}})
    pair.db.execute("TRUNCATE by_index, whole")
    pair.db.execute("INSERT INTO by_index VALUES ('seen', 1)")
    pair.db.execute("INSERT INTO whole VALUES (1, 'unseen', NULL)")
    pair.db.execute("UPDATE zero.permissions SET permissions = %s", [document])
    pair.settle()
    tables = {"by_index": {"code": "string", "n": "number"}, "whole": {"id": "number", "a": "string"}}
    client = zero_client(pair.cache, tables)
    client.wait_for_rows("by_index", [{"code": "seen", "n": 1}])
    client.wait_for_rows("whole", [])
