"""Opening the database: session settings, time limits, and errors that say what to do.

The session settings fix the text form of every value, which `types` relies on; they are the same for ordinary and
replication sessions. Connections are in autocommit mode: transactions are begun and ended with SQL statements. No error
contains a password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from changesource_sdk import AdapterError, ConfigurationError

Connection = psycopg.Connection[tuple[Any, ...]]

SESSION = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "search_path": "pg_catalog",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
CLIENT = {
    "application_name": "changesource",
    "client_encoding": "UTF8",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


def connect(dsn: str, *, replication: bool = False) -> Connection:
    """A connection in autocommit mode; with `replication`, one that can stream. Raises `AdapterError`."""
    with translated_errors(dsn):
        return psycopg.connect(_conninfo(dsn, replication), autocommit=True)


def checked_dsn(dsn: str) -> str:
    """The DSN itself. Raises `ConfigurationError` if libpq cannot parse it."""
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(
            "bad-dsn",
            f"the address of the database cannot be understood: {str(error).splitlines()[0]}",
            where="dsn",
            fix="write it as postgresql://user:password@host:5432/database",
        ) from None
    return dsn


def address(dsn: str) -> str:
    """Host, port and name of the database, without user and password."""
    parts = conninfo_to_dict(dsn)
    where = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
    return f"{where}/{parts.get('dbname', '')}"


def _conninfo(dsn: str, replication: bool) -> str:
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    options = [parts["options"]] if "options" in parts else []
    options += [f"-c {name}={value}" for name, value in SESSION.items()]
    fixed = {"options": " ".join(options), "client_encoding": "UTF8"}
    if replication:
        fixed["replication"] = "database"
    return make_conninfo(**{**CLIENT, **parts, **fixed})


def quoted(name: str) -> str:
    """An identifier as SQL text."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def translated_errors(dsn: str) -> Iterator[None]:
    """Raise `psycopg.Error` as an `AdapterError` with a stable code and a fix."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(dsn, error) from error


def translated(dsn: str, error: psycopg.Error) -> AdapterError:
    """The error with a code and a fix; `adapter-failed` if its cause is not known."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    state = error.sqlstate or ""
    for prefix, code, fix in _STATES:
        if state.startswith(prefix):
            return AdapterError(code, f"Postgres says: {text}", where=address(dsn), fix=fix)
    # Refusals before the session exists have no SQLSTATE in psycopg.
    for part, code, fix in _CAUSES:
        if part in text:
            return AdapterError(code, f"Postgres says: {text}", where=address(dsn), fix=fix)
    return AdapterError(
        "adapter-failed", f"Postgres says: {text}", where=address(dsn), fix="it is tried again; see the server's log"
    )


_STATES = (
    ("28", "login-refused", "check user and password in the setting `dsn`, and pg_hba.conf on the server"),
    ("3D000", "no-such-database", "check the database name in the setting `dsn`, or create it"),
    ("42501", "missing-privilege", "grant what the message names to the user of the setting `dsn`; see `doctor`"),
    ("53300", "too-many-connections", "raise max_connections on the server, or close idle connections"),
    ("53100", "disk-full", "make room on the server's disk"),
    ("57P", "server-away", "nothing to do if the server comes back: it is tried again; else see its log"),
)
_CAUSES = (
    ("password authentication failed", *_STATES[0][1:]),
    ("no password supplied", *_STATES[0][1:]),
    ("no pg_hba.conf entry", *_STATES[0][1:]),
    ('role "', *_STATES[0][1:]),
    ("does not exist", *_STATES[1][1:]),
    (
        "connection failed",
        "server-unreachable",
        "start the server, or correct host and port in the setting `dsn`; it is tried again",
    ),
)
