"""A log in each kind of store, for suites that run over all of them."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Literal, TypeVar

import psycopg

from changesource_sdk.changelog.coordination.contract import Coordination
from changesource_sdk.changelog.coordination.wakeup import WakeupListener
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.log import Log
from changesource_sdk.changelog.postgres.connection import LogAddress
from changesource_sdk.changelog.postgres.store import PostgresLogStore
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.positions import Position
from tests.changesource_sdk.changelog.log_fixtures import START_US, begin_generation

Kind = Literal["sqlite", "postgres"]
KINDS: tuple[Kind, ...] = ("sqlite", "postgres")
Opened = TypeVar("Opened", Log, LogWriter, Coordination, WakeupListener)


def postgres_store(url: str, state_directory: Path) -> PostgresLogStore:
    """A log in a schema of its own."""
    return PostgresLogStore(LogAddress(url, f"log_{secrets.token_hex(6)}"), StateDirectory(state_directory))


class LogUnderTest:
    """One log and all that a test opened from it, closed together."""

    def __init__(self, kind: Kind, store: LogStore) -> None:
        self.kind = kind
        self.store = store
        self.state = store.layout.root
        self._stack = ExitStack()

    def _opened(self, made: Opened) -> Opened:
        self._stack.callback(made.close)
        return made

    def writer(self, now_us: int = START_US) -> LogWriter:
        return self._opened(self.store.open_writer(lambda: now_us))

    def writer_with_generation(self, position: Position = 0) -> LogWriter:
        writer = self.writer()
        begin_generation(writer, self.state, position)
        return writer

    def reader(self) -> Log:
        return self._opened(self.store.open_log())

    def consumers(self) -> Coordination:
        return self._opened(self.store.open_coordination())

    def listener(self) -> WakeupListener:
        return self._opened(self.store.listen())

    def lose(self) -> None:
        """Let the log vanish behind everybody's back; the spool stays."""
        if isinstance(self.store, PostgresLogStore):
            self._execute(f'DROP SCHEMA "{self.store.address.schema}" CASCADE')
        else:
            self.store.layout.log.unlink()

    def drop_tables(self, *names: str) -> None:
        """Make the log one of an earlier release, which did not have these tables."""
        for name in names:
            if isinstance(self.store, PostgresLogStore):
                self._execute(f'DROP TABLE "{self.store.address.schema}".{name}')
            else:
                with closing(sqlite3.connect(self.store.layout.log)) as connection:
                    connection.execute(f"DROP TABLE {name}")

    def close(self) -> None:
        self._stack.close()
        self.store.close()
        if isinstance(self.store, PostgresLogStore):
            self._execute(f'DROP SCHEMA IF EXISTS "{self.store.address.schema}" CASCADE')

    def _execute(self, statement: str) -> None:
        assert isinstance(self.store, PostgresLogStore)
        with psycopg.connect(self.store.address.url, autocommit=True) as connection:
            connection.execute(statement.encode())
