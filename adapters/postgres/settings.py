"""The settings of the adapter: `changesource serve postgres --set dsn=… --set publication=…`.

| setting | meaning |
|---|---|
| `dsn` | the database, as `postgresql://user:password@host:5432/database` |
| `publication` | publications to follow, comma-separated; without it one for all tables of schema `public` is created |
| `tables`, `exclude` | which of the published tables to sync or not: full names or globs, comma-separated |
| `slot` | the replication slot, created if it does not exist; by default named after app, shard and database |
| `app`, `shard` | the consumer's ZERO_APP_ID and shard number, which name its tables in the database |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from psycopg.conninfo import conninfo_to_dict

from adapters.postgres.catalog.table_selection import TableSelection
from adapters.postgres.connection import Connection, checked_dsn, connect
from adapters.postgres.system_tables import table_names
from changesource_sdk import ConfigurationError

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")
_APP = re.compile(r"[a-z0-9_]{1,40}")
_NAME_LENGTH = 63


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """Well-formed settings. Whether the database has what they name is checked by `checks`."""

    dsn: str
    publications: tuple[str, ...]
    slot: str
    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    app: str = "zero"
    shard: int = 0

    @classmethod
    def parse(
        cls,
        dsn: str,
        publication: str | Sequence[str] = (),
        tables: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        slot: str = "",
        app: str = "zero",
        shard: int | str = 0,
    ) -> PostgresSettings:
        """Raises `ConfigurationError` for a value that is not allowed."""
        names = _names(publication)
        for name in names:
            _check("publication", name, _IDENTIFIER, "give names of publications, letters, digits and _ only")
        number = str(shard)
        _check("app", app, _APP, "give the consumer's ZERO_APP_ID: lower-case letters, digits and _")
        _check("shard", number, re.compile(r"[0-9]{1,5}"), "give the consumer's shard number, normally 0")
        slot = slot or _default_slot(checked_dsn(dsn), app, int(number))
        _check("slot", slot, _SLOT_NAME, "use lower-case letters, digits and _")
        return cls(checked_dsn(dsn), names, slot, _names(tables), _names(exclude), app, int(number))

    @property
    def default_publication(self) -> str:
        """The publication that the adapter creates if the user names none."""
        return f"changesource_{self.app}_{self.shard}"

    @property
    def system_publication(self) -> str:
        """The publication of the consumer's own tables, which the adapter creates."""
        return f"changesource_{self.app}_{self.shard}_system"

    @property
    def data_publications(self) -> tuple[str, ...]:
        """The publications of the user's tables."""
        return self.publications or (self.default_publication,)

    @property
    def all_publications(self) -> tuple[str, ...]:
        return (*self.data_publications, self.system_publication)

    @property
    def selection(self) -> TableSelection:
        return TableSelection(self.tables, self.exclude, table_names(self.app, self.shard))

    def connect(self, *, replication: bool = False) -> Connection:
        """A connection to the database in autocommit mode."""
        return connect(self.dsn, replication=replication)


def _default_slot(dsn: str, app: str, shard: int) -> str:
    # Slot names are unique in the whole server, so the name contains that of the database.
    database = str(conninfo_to_dict(dsn).get("dbname") or "")
    plain = re.sub(r"[^a-z0-9_]", "_", database.lower())
    name = f"changesource_{app}_{shard}_{plain}".rstrip("_")
    if plain == database and len(name) <= _NAME_LENGTH:
        return name
    digest = f"_{crc32(database.encode()):08x}"
    return name[: _NAME_LENGTH - len(digest)] + digest


def _names(setting: str | Sequence[str]) -> tuple[str, ...]:
    parts = setting.split(",") if isinstance(setting, str) else setting
    return tuple(dict.fromkeys(name.strip() for name in parts if name.strip()))


def _check(name: str, value: str, pattern: re.Pattern[str], fix: str) -> None:
    if not pattern.fullmatch(value):
        raise ConfigurationError("bad-setting", f"the setting `{name}` cannot be {value!r}", where=name, fix=fix)
