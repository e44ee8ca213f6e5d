"""The log of a cluster: tables in Postgres, snapshots in a spool that all hosts can read.

The pipeline appends from any host, and any number of endpoints without state read, each on its own host. Snapshots are
written once and read often, so they are files: in a directory that the pipeline and the endpoints share, or under a URI
from which endpoints fetch them (`spool.remote`).
"""

from __future__ import annotations

from functools import partial

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.postgres.connection import LogAddress
from changesource_sdk.changelog.postgres.coordination import PostgresCoordination
from changesource_sdk.changelog.postgres.log import PostgresLog
from changesource_sdk.changelog.spool.files import SnapshotFiles
from changesource_sdk.changelog.spool.spool import Spool
from changesource_sdk.changelog.store import LogStore


class PostgresLogStore(LogStore):
    """The `LogStore` of a schema in a database. Each process opens its own connections; they are never pickled."""

    def __init__(self, address: LogAddress, layout: StateDirectory, spool: Spool | None = None) -> None:
        self.address = address
        super().__init__(
            SnapshotFiles(layout, spool),
            open_log=partial(PostgresLog, address, layout),
            open_coordination=partial(PostgresCoordination, address, layout),
        )
