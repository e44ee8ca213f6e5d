"""Chooses the backend of the log: SQLite in the state directory, or the Postgres database of a URL."""

from __future__ import annotations

from pathlib import Path

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.spool.remote import RemoteSpool
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import ConfigurationError, StateError

SCHEMES = ("postgresql://", "postgres://")


def open_store(
    state_directory: Path, log: str | None = None, schema: str = "changesource", spool: str | None = None
) -> LogStore:
    """Return the log store for `--state`, `--log`, `--log-schema` and `--spool`. No file or connection is opened yet.

    Its paths are absolute, because tasks of a cluster run in other working directories. Raises `ConfigurationError`.
    """
    state_directory = state_directory.absolute()
    if not log:
        return SqliteLogStore(state_directory, _local_spool(spool))
    if not log.startswith(SCHEMES):
        raise ConfigurationError(
            "bad-log-url",
            "a log can be kept in the state directory or in Postgres",
            where="--log",
            fix="leave it out, or write it as postgresql://user:password@host:5432/database",
        )
    try:
        from changesource_sdk.changelog.postgres.connection import LogAddress
        from changesource_sdk.changelog.postgres.store import PostgresLogStore
    except ImportError as error:
        raise ConfigurationError(
            "psycopg-missing",
            f"a log in Postgres needs psycopg: {error}",
            where="--log",
            fix="pip install 'zero-changesource[postgres]'",
        ) from error
    address = LogAddress(log, schema)
    # A database holds many logs, and each sweeps its own spool: the schema separates them there too.
    if spool and "://" in spool:
        return PostgresLogStore(address, StateDirectory(state_directory), RemoteSpool(spool).under(schema))
    return PostgresLogStore(
        address, StateDirectory(state_directory, Path(spool).absolute() / schema if spool else None)
    )


def open_existing(
    state_directory: Path, log: str | None = None, schema: str = "changesource", spool: str | None = None
) -> LogStore:
    """Do the same for commands that only read: raises `StateError` if there is no such state directory."""
    if not log and not state_directory.is_dir():
        fix = "give the directory of serve's --state, or --log"
        raise StateError("no-state", "there is no such state directory", str(state_directory), fix)
    return open_store(state_directory, log, schema, spool)


def _local_spool(spool: str | None) -> Path | None:
    if spool and "://" in spool:
        raise ConfigurationError(
            "bad-spool",
            "a spool with a URI is for a log that other hosts read",
            where="--spool",
            fix="give a directory, or keep the log in Postgres with --log",
        )
    return Path(spool).absolute() if spool else None
