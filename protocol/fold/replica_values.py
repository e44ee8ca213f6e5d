"""What becomes of stored values when a column is added or changes its type, exactly as in a consumer's replica.

Replicas are SQLite files: the name of a type decides its affinity, and a value that moves to a column of another type
is converted by it. An in-memory SQLite database does the conversion here. The result is a value that, sent to a column
of the new type, is stored as such a replica stores it; an adapter might be unable to send it, if the old value does not
fit the new type.
"""

from __future__ import annotations

import sqlite3
import threading
from functools import lru_cache

from protocol.data_types import SAFE_INTEGER, value_kind
from protocol.specs import ColumnSpec, sql_default

_CACHED_VALUES = 16_384
# All threads share the connections of `_columns`.
_lock = threading.Lock()


def declared_type(spec: ColumnSpec) -> str:
    """The type as a replica declares it, as far as it decides what is stored."""
    return f"{spec.data_type}|TEXT_ENUM" if spec.is_enum else spec.data_type


def default_value(spec: ColumnSpec) -> object:
    """What existing rows hold in a column that was added with this spec.

    Raises ValueError if consumers do not understand its default.
    """
    literal = sql_default(spec.dflt)
    if literal is None:
        return None
    with _lock:
        connection = sqlite3.connect(":memory:")
        connection.execute(f"CREATE TABLE t (id, c {_quoted(declared_type(spec))} DEFAULT {literal})")
        connection.execute("INSERT INTO t (id) VALUES (1)")
        (value,) = connection.execute("SELECT c FROM t").fetchone()
        connection.close()
    return _sent(value, spec.data_type)


def converted(value: object, old: str, new: str) -> object:
    """What a value of a column declared `old` is after the column was declared `new`.

    A parsed JSON document is returned as it is: which text of it a replica stored is not known here.
    """
    if value is None or isinstance(value, dict | list):
        return value
    # The type of the value is part of the cache key: 1, 1.0 and True are equal in Python but not in a text column.
    return _converted(type(value).__name__, value, old, new)


@lru_cache(_CACHED_VALUES)
def _converted(kind: str, value: object, old: str, new: str) -> object:
    with _lock:
        connection = _columns(old, new)
        connection.execute("UPDATE t SET a = ?", (_bound(value),))
        connection.execute("UPDATE t SET b = a")
        (result,) = connection.execute("SELECT b FROM t").fetchone()
    return _sent(result, new)


@lru_cache(64)
def _columns(old: str, new: str) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.execute(f"CREATE TABLE t (a {_quoted(old)}, b {_quoted(new)})")
    connection.execute("INSERT INTO t DEFAULT VALUES")
    return connection


def _bound(value: object) -> object:
    """As zero-cache binds it: every number that a float holds exactly is bound as a float."""
    return float(value) if isinstance(value, int) and abs(value) <= SAFE_INTEGER else value


def _sent(value: object, data_type: str) -> object:
    """As an adapter would send it: replicas store booleans as numbers."""
    return bool(value) if value_kind(data_type) == "boolean" and value in (0, 1) else value


def _quoted(data_type: str) -> str:
    # Not `service_kit.sqlite.quoted`: this package imports nothing of the project.
    return '"' + data_type.replace('"', '""') + '"'
