"""Who reads a Delta table: `deltalake`, unless it falls short and the Spark session has a Delta of its own.

The setting `delta_reader` says it; with "auto", a table is handed to Spark when it asks its readers for a feature that
`deltalake` does not know, or has columns mapped, whose feed it does not read. That may happen at any version, and holds
from there on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from adapters.spark_tables.delta.access import DeltaAccess, DeltaVersion
from adapters.spark_tables.delta.jar_free import JarFreeAccess, JarFreeVersion
from adapters.spark_tables.delta.log import Commit
from adapters.spark_tables.delta.spark import SparkAccess, has_delta
from adapters.spark_tables.delta.table import UNSUPPORTED
from adapters.spark_tables.settings import TableSettings
from changesource_sdk import AdapterError
from changesource_sdk.toolkit import event, has_spark_session, logger, spark_session

_log = logger("spark-tables")


def open_access(table: TableSettings) -> DeltaAccess:
    """The reader that the settings ask for."""
    match table.delta_reader:
        case "deltalake":
            return JarFreeAccess(table)
        case "spark":
            return SparkAccess(table)
    return ChosenAccess(table)


class ChosenAccess:
    """Reads one table by `deltalake` as long as that reads all of it, or nobody else does."""

    def __init__(self, table: TableSettings) -> None:
        self._table = table
        self._access: JarFreeAccess | SparkAccess = JarFreeAccess(table)

    def mark(self, number: int) -> str | None:
        """What tells a commit from another one of the same version."""
        return self._access.mark(number)

    def commit(self, number: int) -> Commit | None:
        """A commit."""
        return self._access.commit(number)

    def open(self, number: int | None = None) -> DeltaVersion:
        """The table at a version, else at its newest."""
        return self._read_by_the_best(lambda: self._access.open(number), number)

    def moved_on(self, opened: DeltaVersion) -> DeltaVersion:
        """The newest version."""
        return self._read_by_the_best(lambda: self._access.moved_on(opened), None)

    def _read_by_the_best(self, opening: Callable[[], DeltaVersion], number: int | None) -> DeltaVersion:
        try:
            found = opening()
            reason = found.shortcoming() if isinstance(found, JarFreeVersion) else ""
            return self._access.open(number) if reason and self._hand_over(reason) else found
        except AdapterError as error:
            if error.code != UNSUPPORTED or not self._hand_over(error.message):
                raise
            return self._access.open(number)

    def _hand_over(self, reason: str) -> bool:
        """Whether from now on Spark reads the table."""
        if isinstance(self._access, SparkAccess) or not has_spark_session() or not has_delta(spark_session()):
            return False
        self._access = SparkAccess(self._table)
        event(_log, logging.INFO, "the session's Delta reads the table", table=self._table.name, reason=reason)
        return True
