"""A Delta table as a query reads it: whole, at its newest version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.spark_tables.delta.access import DeltaAccess
from adapters.spark_tables.delta.table import shape_of
from adapters.spark_tables.settings import TableSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class DeltaReader:
    """Reads a Delta table, however its settings say."""

    table: TableSettings
    access: DeltaAccess

    def fingerprint(self, session: SparkSession) -> str | None:
        """The table's id and version."""
        found = self.access.open()
        return f"{found.id} {found.number}"

    def frame(self, session: SparkSession) -> DataFrame:
        """The newest version."""
        found = self.access.open()
        return found.frame(session, shape_of(self.table, found.schema))
