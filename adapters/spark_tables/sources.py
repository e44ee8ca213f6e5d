"""From a table's settings to the source that follows it."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.spark_tables.delta.choice import open_access
from adapters.spark_tables.delta.reader import DeltaReader
from adapters.spark_tables.delta.source import DeltaSource
from adapters.spark_tables.delta.table import located
from adapters.spark_tables.difference.source import DifferenceSource
from adapters.spark_tables.readers.contract import TableReader
from adapters.spark_tables.readers.files_and_jdbc import FolderReader, JdbcReader
from adapters.spark_tables.readers.iceberg import IcebergReader
from adapters.spark_tables.readers.query import QueryReader
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import TableSource


def open_source(table: TableSettings, folder: str, tables: Sequence[TableSettings]) -> TableSource:
    """The source of a table. `folder` is where it remembers things; `tables` are all, for a query that names others."""
    if table.kind == "delta":
        found = located(table)
        return DeltaSource(found, folder, open_access(found))
    return DifferenceSource(table, folder, open_reader(table, tables))


def open_reader(table: TableSettings, tables: Sequence[TableSettings]) -> TableReader:
    """What reads a table's rows as they are now. A query may name any other table, but no other query."""
    match table.kind:
        case "delta":
            found = located(table)
            return DeltaReader(found, open_access(found))
        case "iceberg":
            return IcebergReader(table)
        case "jdbc":
            return JdbcReader(table)
        case "query":
            return QueryReader(table, {other.name: open_reader(other, ()) for other in tables if other.kind != "query"})
    return FolderReader(table)
