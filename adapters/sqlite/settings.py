"""The settings of the adapter: which tables are synced and how they are read.

`path` is the database file. `tables` and `exclude` are comma-separated names or globs. `poll` is the longest pause
between two polls in seconds. `dates` (`text` or `number`) says what columns declared DATE… or TIME… hold.
`exact_replace` says whether `REPLACE` is also followed through unique indexes. `scratch` is the folder for the copy
that a snapshot is read from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from adapters.sqlite.types import Dates
from changesource_sdk import ConfigurationError

SHORTEST_PAUSE_S = 0.0005


@dataclass(frozen=True, slots=True)
class Selection:
    """Which tables to sync, by name or glob (none: all that can be synced), and how to read them.

    `exact_replace` lets triggers name the columns of `CREATE UNIQUE INDEX`. Rows that `REPLACE` removes because of such
    an index are then always recorded, but the user cannot drop such a column before the capture has seen that its index
    was dropped.
    """

    # The text of this object (`repr`) is stored in the database: a change of it makes `capture.install` run again.
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    dates: Dates = "text"
    exact_replace: bool = False

    def wants(self, table: str) -> bool:
        """Whether the settings select a table of this name."""
        chosen = not self.include or any(fnmatchcase(table, pattern) for pattern in self.include)
        return chosen and not any(fnmatchcase(table, pattern) for pattern in self.exclude)


def selection(
    tables: str | Sequence[str], exclude: str | Sequence[str], dates: str, exact_replace: bool | str
) -> Selection:
    """Raises `ConfigurationError` for a value that is not allowed."""
    return Selection(_names(tables), _names(exclude), _dates(dates), _truth(exact_replace))


def longest_pause(poll: float | str) -> float:
    """The setting `poll` in seconds. Raises `ConfigurationError` unless it is above 0 and at most 60."""
    try:
        seconds = float(poll)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 60:
        raise _bad_setting("poll", poll, "give seconds above 0 and up to 60, such as 0.01")
    return max(seconds, SHORTEST_PAUSE_S)


def _names(setting: str | Sequence[str]) -> tuple[str, ...]:
    parts = setting.split(",") if isinstance(setting, str) else setting
    return tuple(name.strip() for name in parts if name.strip())


def _dates(setting: str) -> Dates:
    match setting:
        case "text" | "number":
            return setting
    raise _bad_setting("dates", setting, "use `text` or `number`")


def _truth(setting: bool | str) -> bool:
    if str(setting).lower() in ("true", "false"):
        return str(setting).lower() == "true"
    raise _bad_setting("exact_replace", setting, "use `true` or `false`")


def _bad_setting(name: str, value: object, fix: str) -> ConfigurationError:
    return ConfigurationError("bad-setting", f"the setting `{name}` cannot be {value!r}", where=name, fix=fix)
