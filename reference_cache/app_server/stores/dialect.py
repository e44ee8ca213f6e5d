"""The SQL of one kind of database, as far as stores differ in it: quoting, placeholders, JSON and upserts. Pure.

| | Postgres | SQLite | MySQL, MariaDB |
| --- | --- | --- | --- |
| placeholder | `%s` | `?` | `%s` |
| names | `"x"` | `"x"` | `` `x` `` |
| `zero_0.clients` | in schema `zero_0` | a table with a dot in its name | in database `zero_0` |
| upsert | `ON CONFLICT (key) DO UPDATE` | the same | `ON DUPLICATE KEY UPDATE` |
| `RETURNING` | yes | yes | no: the new id is read by a second statement |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from protocol import values
from service_kit.sqlite import quoted

COUNTER_KEY = ("clientGroupID", "clientID")
COUNTER = "lastMutationID"


class Dialect(ABC):
    """What a store's SQL looks like. A new kind of database is a subclass, and a store that uses it."""

    mark: ClassVar[str]
    """The placeholder of a parameter."""

    def quote(self, name: str) -> str:
        """A column's name, whatever characters it has."""
        return quoted(name)

    def table(self, name: str) -> str:
        """A table's name, `name` or `schema.name`."""
        return ".".join(self.quote(part) for part in name.split(".", 1))

    def json(self, value: object) -> Any:
        """A JSON value as a parameter."""
        return values.dumps(value).decode()

    @abstractmethod
    def on_conflict(self, key: Sequence[str], columns: Sequence[str]) -> str:
        """What follows an INSERT so that it sets these columns if a row with this key exists; none: it does nothing.

        Names are quoted.
        """

    @abstractmethod
    def next_id(self, clients: str) -> Sequence[str]:
        """Statements that increment a client's last mutation id, or set it to 1; the last one returns it.

        `clients` is the quoted table. Each statement has the client group's and the client's id as its parameters.
        They must lock the client's row until the transaction ends.
        """

    def marks(self, count: int) -> str:
        """That many placeholders."""
        return ", ".join([self.mark] * count)

    def insert_counter(self, clients: str) -> str:
        """An INSERT of a client's first mutation id; the start of `next_id`."""
        columns = ", ".join(map(self.quote, (*COUNTER_KEY, COUNTER)))
        return f"INSERT INTO {clients} ({columns}) VALUES ({self.marks(2)}, 1)"

    def where_client(self) -> str:
        """The condition for one client's rows, with the ids of client group and client as parameters."""
        return " AND ".join(f"{self.quote(name)} = {self.mark}" for name in COUNTER_KEY)


class StandardDialect(Dialect):
    """`ON CONFLICT` and `RETURNING`, which Postgres and SQLite share."""

    def on_conflict(self, key: Sequence[str], columns: Sequence[str]) -> str:
        sets = ", ".join(f"{column} = excluded.{column}" for column in columns)
        return f"ON CONFLICT ({', '.join(key)}) {f'DO UPDATE SET {sets}' if columns else 'DO NOTHING'}"

    def next_id(self, clients: str) -> Sequence[str]:
        key, counter = ", ".join(map(self.quote, COUNTER_KEY)), self.quote(COUNTER)
        update = f"ON CONFLICT ({key}) DO UPDATE SET {counter} = {clients}.{counter} + 1 RETURNING {counter}"
        return [f"{self.insert_counter(clients)} {update}"]


class SqliteDialect(StandardDialect):
    """SQLite has no schemas that one file could hold: the dot is a part of the table's name."""

    mark = "?"

    def table(self, name: str) -> str:
        return self.quote(name)


class MysqlDialect(Dialect):
    """MySQL and MariaDB. A schema is a database there.

    `ON DUPLICATE KEY UPDATE` also applies to a row that has the same value in another unique index.
    """

    mark = "%s"

    def quote(self, name: str) -> str:
        # `%` would be read as a placeholder by the driver.
        return "`" + name.replace("`", "``").replace("%", "%%") + "`"

    def on_conflict(self, key: Sequence[str], columns: Sequence[str]) -> str:
        sets = [f"{column} = VALUES({column})" for column in columns] or [f"{key[0]} = {key[0]}"]
        return f"ON DUPLICATE KEY UPDATE {', '.join(sets)}"

    def next_id(self, clients: str) -> Sequence[str]:
        counter = self.quote(COUNTER)
        return [
            f"{self.insert_counter(clients)} ON DUPLICATE KEY UPDATE {counter} = {counter} + 1",
            f"SELECT {counter} FROM {clients} WHERE {self.where_client()}",
        ]
