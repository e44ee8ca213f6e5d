"""From a table's settings to the source that follows it."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.spark_tables.delta_feed import DeltaFeed
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import TableSource
from changesource_sdk.errors import ConfigurationError


def open_source(table: TableSettings, folder: str, tables: Sequence[TableSettings]) -> TableSource:
    """The source of a table. `folder` is where it remembers things; `tables` are all, for a query that names others."""
    match table.kind:
        case "delta":
            return DeltaFeed(table, folder)
    raise ConfigurationError("bad-setting", f"there is no source {table.kind} yet", f"tables.{table.name}", "")
