"""The log of one host: SQLite and files in the state directory. The default."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.spool.files import SnapshotFiles
from changesource_sdk.changelog.sqlite.coordination import SqliteCoordination
from changesource_sdk.changelog.sqlite.log import SqliteLog
from changesource_sdk.changelog.store import LogStore


class SqliteLogStore(LogStore):
    """The `LogStore` of a state directory; every process that uses it is on the same host."""

    def __init__(self, state_directory: Path, spool: Path | None = None) -> None:
        layout = StateDirectory(state_directory, spool)
        super().__init__(
            SnapshotFiles(layout),
            open_log=partial(SqliteLog, layout),
            open_coordination=partial(SqliteCoordination, layout),
            is_local=True,
        )
