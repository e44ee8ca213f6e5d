"""A Delta table as a query reads it: whole, at its newest version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.spark_tables.delta_shares import frame_of, shares
from adapters.spark_tables.delta_table import open_table, shape_of
from adapters.spark_tables.settings import TableSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class DeltaReader:
    """Reads a Delta table without Spark's Delta jars."""

    table: TableSettings

    def fingerprint(self, session: SparkSession) -> str | None:
        """The table's id and version."""
        found = open_table(self.table)
        return f"{found.metadata().id} {found.version()}"

    def frame(self, session: SparkSession) -> DataFrame:
        """The newest version."""
        found = open_table(self.table)
        shape = shape_of(self.table, found.schema().to_json())
        return frame_of(session, shape, shares(self.table, found, shape))
