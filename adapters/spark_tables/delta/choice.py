"""Chooses the reader of a Delta table: `deltalake`, or the Delta of the Spark session.

The setting `delta_reader` decides. With "auto", `deltalake` reads the table until it requires a feature that
`deltalake` does not know, or maps columns, whose feed `deltalake` does not read. From that version on the session's
Delta reads it, if the session has one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.spark_tables.delta.access import DeltaAccess, DeltaVersion
from adapters.spark_tables.delta.jar_free import JarFreeAccess, JarFreeVersion
from adapters.spark_tables.delta.log import DeltaCommit
from adapters.spark_tables.delta.spark import SparkAccess, has_delta
from adapters.spark_tables.delta.table import UNSUPPORTED, shape_of
from adapters.spark_tables.settings import TableSettings
from changesource_sdk import AdapterError
from changesource_sdk.toolkit import event, has_spark_session, logger, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logger("spark-tables")


def open_access(table: TableSettings) -> DeltaAccess:
    """The reader according to the settings."""
    match table.delta_reader:
        case "deltalake":
            return JarFreeAccess(table)
        case "spark":
            return SparkAccess(table)
    return ChosenAccess(table)


class ChosenAccess:
    """Reads one table with `deltalake` while that can read all of it, or the session has no Delta."""

    def __init__(self, table: TableSettings) -> None:
        self._table = table
        # Replaced once, by `_hand_over`.
        self._access: JarFreeAccess | SparkAccess = JarFreeAccess(table)

    def mark(self, number: int) -> str | None:
        """See `DeltaAccess.mark`."""
        return self._access.mark(number)

    def commit(self, number: int) -> DeltaCommit | None:
        return self._access.commit(number)

    def open(self, number: int | None = None) -> DeltaVersion:
        """The table at a version, or at its newest."""
        return self._read_by_the_best(lambda: self._access.open(number), number)

    def moved_on(self, opened: DeltaVersion) -> DeltaVersion:
        """The newest version."""
        return self._read_by_the_best(lambda: self._access.moved_on(opened), None)

    def _read_by_the_best(self, opening: Callable[[], DeltaVersion], number: int | None) -> DeltaVersion:
        try:
            version = opening()
            reason = version.shortcoming() if isinstance(version, JarFreeVersion) else ""
            return self._access.open(number) if reason and self._hand_over(reason) else version
        except AdapterError as error:
            if error.code != UNSUPPORTED or not self._hand_over(error.message):
                raise
            return self._access.open(number)

    def _hand_over(self, reason: str) -> bool:
        """Let the session's Delta read the table from now on; returns whether it can."""
        if isinstance(self._access, SparkAccess) or not has_spark_session() or not has_delta(spark_session()):
            return False
        self._access = SparkAccess(self._table)
        event(_log, logging.INFO, "the session's Delta reads the table", table=self._table.name, reason=reason)
        return True


@dataclass(frozen=True, slots=True)
class DeltaReader:
    """The newest version of a Delta table, for a query that names it."""

    table: TableSettings
    access: DeltaAccess

    def fingerprint(self, session: SparkSession) -> str | None:
        """The table's id and version."""
        version = self.access.open()
        return f"{version.id} {version.number}"

    def frame(self, session: SparkSession) -> DataFrame:
        """The rows of the newest version."""
        version = self.access.open()
        return version.frame(session, shape_of(self.table, version.schema))
