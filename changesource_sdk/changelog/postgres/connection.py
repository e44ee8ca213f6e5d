"""Connections to a log kept in Postgres: its tables, its sessions, and what its failures mean.

Each log has its own schema, so one database can have the logs of many change sources. The first connection creates the
tables, under an advisory lock. Sessions never commit asynchronously, whatever the server's default. Both ends give up
on a dead peer within seconds, so that a writer that is cut off in the middle of a transaction does not keep its
successor waiting for its locks. Errors of Postgres become `StateError`s here, and only here, without passwords.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from changesource_sdk.errors import ConfigurationError, CorruptLog, DiskFull, ReadOnlyState, StateError
from service_kit.errors import translated_errors

FORMAT = 1
SHARED_FORMAT = 2
"""That of a log that named sources share: earlier releases would take it for a log without positions."""
DEFAULT_SCHEMA = "changesource"
Connection = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_CLIENT = {
    "application_name": "changesource",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_SESSION = """SELECT set_config('search_path', %s, false),
  set_config('idle_in_transaction_session_timeout', '30s', false), set_config('lock_timeout', '30s', false),
  set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
  set_config('tcp_keepalives_count', '3', false),
  CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
    THEN set_config('synchronous_commit', 'on', false) END"""
_TABLES = """
CREATE TABLE IF NOT EXISTS state (
  id integer PRIMARY KEY CHECK (id = 1),
  format integer NOT NULL,
  generation bigint NOT NULL,
  epoch bigint NOT NULL,
  head text COLLATE "C" NOT NULL,
  oldest text COLLATE "C" NOT NULL,
  highest text COLLATE "C" NOT NULL,
  position text NOT NULL,
  schema text NOT NULL,
  transactions bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS snapshots (
  watermark text COLLATE "C" PRIMARY KEY,
  generation bigint NOT NULL,
  position text NOT NULL,
  schema text NOT NULL,
  directory text NOT NULL,
  created_ms double precision NOT NULL
);
CREATE TABLE IF NOT EXISTS transactions (
  watermark text COLLATE "C" PRIMARY KEY,
  position text NOT NULL,
  commit_time_ms double precision,
  changes bigint NOT NULL,
  size bigint NOT NULL,
  frames bytea,
  blocks integer
);
CREATE UNIQUE INDEX IF NOT EXISTS transactions_position ON transactions (md5(position));
ALTER TABLE transactions ALTER COLUMN frames SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS segment_blocks (
  watermark text COLLATE "C" NOT NULL,
  number integer NOT NULL,
  block bytea NOT NULL,
  PRIMARY KEY (watermark, number)
);
ALTER TABLE segment_blocks ALTER COLUMN block SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS subscribers (
  app_id text COLLATE "C" NOT NULL,
  shard bigint NOT NULL,
  replica_version text COLLATE "C" NOT NULL,
  acknowledged text COLLATE "C" NOT NULL,
  seen_ms double precision NOT NULL,
  PRIMARY KEY (app_id, shard, replica_version)
);
CREATE TABLE IF NOT EXISTS requests (
  kind text PRIMARY KEY,
  watermark text COLLATE "C" NOT NULL,
  reason text NOT NULL
);
CREATE TABLE IF NOT EXISTS reports (
  stage text PRIMARY KEY,
  report text NOT NULL
);
CREATE TABLE IF NOT EXISTS sources (
  name text COLLATE "C" PRIMARY KEY,
  epoch bigint NOT NULL,
  position text,
  schema text NOT NULL,
  fingerprint text NOT NULL,
  reads bigint NOT NULL
);
INSERT INTO state VALUES (1, 1, 0, 0, '00', '00', '00', 'null', '', 0) ON CONFLICT DO NOTHING;
"""
# Apart from the others, because logs of earlier releases do not have them.
_LETTER_TABLES = """
CREATE TABLE IF NOT EXISTS dead_letters (
  id bigint GENERATED ALWAYS AS IDENTITY,
  source text NOT NULL,
  table_name text NOT NULL,
  row_key text NOT NULL,
  outcome text NOT NULL,
  letter text NOT NULL,
  PRIMARY KEY (source, table_name, row_key)
);
CREATE TABLE IF NOT EXISTS skips (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  source text NOT NULL,
  skip text NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class LogAddress:
    """A database and the schema of one log in it. Invariant: both are well formed; they need not exist."""

    url: str
    schema: str = DEFAULT_SCHEMA

    def __post_init__(self) -> None:
        if not _SCHEMA_NAME.fullmatch(self.schema):
            raise ConfigurationError(
                "bad-log-schema",
                f"{self.schema!r} cannot be the schema of a log",
                where="--log-schema",
                fix="use up to 40 lower-case letters, digits and underscores, not starting with a digit",
            )
        try:
            conninfo_to_dict(self.url)
        except psycopg.ProgrammingError as error:
            raise ConfigurationError(
                "bad-log-url",
                f"the address of the log cannot be understood: {str(error).splitlines()[0]}",
                where="--log",
                fix="write it as postgresql://user:password@host:5432/database",
            ) from None

    @property
    def where(self) -> str:
        """The address for messages, without secrets."""
        parts = conninfo_to_dict(self.url)
        host, port = parts.get("host") or "localhost", parts.get("port") or "5432"
        return f"postgresql://{host}:{port}/{parts.get('dbname') or ''}, schema {self.schema}"

    @property
    def channel(self) -> str:
        """The name of the NOTIFY channel that wakes readers."""
        return f"changesource_{self.schema}"


def translated(where: str) -> AbstractContextManager[None]:
    """Raise a `StateError` with a fix for an error of Postgres inside the block."""
    return translated_errors(psycopg.Error, lambda error: _our_error(error, where))


def _our_error(error: psycopg.Error, where: str) -> StateError:
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    match error.sqlstate:
        case None if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return _unreachable(said, where)
        case "57P01" | "57P02" | "57P03" | "53300" | "25P03":
            return _unreachable(said, where)
        case str(code) if code.startswith("08"):
            return _unreachable(said, where)
        case "53100" | "53200":
            fix = "free space on the disk of the database server"
            return DiskFull("disk-full", f"the database of the log has no room: {said}", where, fix)
        case "XX001" | "XX002":
            fix = "nothing to do: it is set aside and consumers are reset to a new snapshot; check the server's disk"
            return CorruptLog("log-corrupt", f"the change log is damaged: {said}", where, fix)
        case "42501" | "25006":
            fix = "grant this role CREATE on the database, or ownership of the schema, on a server that takes writes"
            return ReadOnlyState("log-not-writable", f"the change log cannot be written: {said}", where, fix)
        case "28000" | "28P01" | "3D000":
            return StateError("log-refused", f"the database refuses: {said}", where, "correct --log")
    return StateError("log-failed", f"the change log failed: {said}", where, "see the log of the database server")


def _unreachable(said: str, where: str) -> StateError:
    return StateError(
        "log-unreachable",
        f"the database of the log cannot be reached: {said}",
        where,
        "start it or correct --log; it is tried again with a growing delay",
    )


def connect(address: LogAddress) -> Connection:
    """Connect to the log and create its tables if they do not exist. The connection is in autocommit."""
    with translated(address.where):
        own = conninfo_to_dict(address.url)
        defaults = {name: value for name, value in _CLIENT.items() if name not in own}
        connection = psycopg.connect(make_conninfo(address.url, **defaults), autocommit=True)
        try:
            connection.execute(_SESSION, (address.schema,))
            has_tables = "SELECT to_regclass('state') IS NOT NULL AND to_regclass('skips') IS NOT NULL"
            if connection.execute(has_tables).fetchone() != (True,):
                _make_tables(connection, address.schema)
            _check_format(connection, address)
        except BaseException:
            connection.close()
            raise
    return connection


def add_new_tables(connection: Connection, schema: str) -> None:
    """Create the tables that a log of an earlier release lacks; for writers, since readers may not create any."""
    if connection.execute("SELECT to_regclass('sources')").fetchone() == (None,):
        _make_tables(connection, schema)


def _make_tables(connection: Connection, schema: str) -> None:
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"changesource:{schema}",))
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"'.encode())
        if connection.execute("SELECT to_regclass('state')").fetchone() == (None,):
            connection.execute(_TABLES)
        connection.execute(_LETTER_TABLES)


def _check_format(connection: Connection, address: LogAddress) -> None:
    row = connection.execute("SELECT format FROM state").fetchone()
    if row not in ((FORMAT,), (SHARED_FORMAT,)):
        raise StateError(
            "log-format",
            f"the change log has format {row and row[0]}, this release reads up to {SHARED_FORMAT}",
            where=address.where,
            fix="use the release that wrote it, or another --log-schema",
        )


class Session:
    """One connection for statements that may be repeated, opened when first used and again after it was lost.

    Threads may share it: a lock lets one statement run at a time.
    """

    def __init__(self, address: LogAddress) -> None:
        self.address = address
        self._lock = threading.Lock()  # around every statement
        # Opened by the first statement, and again by the first after it was lost.
        self._connection: Connection | None = None

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; none if it is not a query."""
        return self.run(lambda connection: rows_of(connection, query, parameters))

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run several statements, and run them again on a new connection if the present one was lost meanwhile."""
        with self._lock, translated(self.address.where):
            if self._connection is not None:
                try:
                    return work(self._connection)
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    if not self._connection.closed:
                        raise
            self._connection = connect(self.address)
            return work(self._connection)

    def close(self) -> None:
        """Close the connection; using the session again opens another."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def rows_of(connection: Connection, query: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows; none if it is not a query."""
    with connection.cursor(binary=True) as cursor:
        cursor.execute(query.encode(), parameters)
        return cursor.fetchall() if cursor.description is not None else []
