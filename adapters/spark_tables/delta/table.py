"""Opens a Delta table with `deltalake`, without Spark's Delta jars.

A table that `deltalake` cannot read raises an error with the feature that the table requires.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from adapters.spark_tables.delta.log import MAPPING_SETTING
from adapters.spark_tables.rows.shape import Shape
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import missing
from changesource_sdk import AdapterError
from changesource_sdk.toolkit import spark_session

if TYPE_CHECKING:
    from deltalake import DeltaTable

UNSUPPORTED = "unsupported-feature"
_NAME = re.compile(r"\w+(?:\.\w+){0,2}")
_FEATURE = re.compile(r"[Ff]eatures?(?: required)?:? [\[{']*(\w+)")


def located(table: TableSettings) -> TableSettings:
    """The settings with a path or URI; a name such as `sales.orders` is looked up in Spark's catalogs."""
    if not _NAME.fullmatch(table.location) or Path(table.location).exists():
        return table
    from pyspark.errors import PySparkException

    try:
        described = spark_session().sql(f"DESCRIBE TABLE EXTENDED {table.location}").collect()
    except PySparkException as error:
        raise missing(table.name, table.location) from error
    locations = [row["data_type"] for row in described if row["col_name"] == "Location"]
    if not locations:
        raise missing(table.name, table.location)
    return replace(table, location=str(locations[0]))


def open_table(table: TableSettings, version: int | None = None) -> DeltaTable:
    """The table at a version, or at its newest."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(table.location, version=version, storage_options=dict(table.options) or None)
    except TableNotFoundError:
        raise missing(table.name, table.location) from None
    except DeltaError as error:
        raise unreadable(table, error) from error


def unreadable(table: TableSettings, error: Exception) -> AdapterError:
    """The error for a table that exists and cannot be read."""
    said = str(error).strip().splitlines()[0]
    if ("nsupported" in said or "not supported" in said) and (required := _FEATURE.search(said)):
        # deltalake's kernel says TypeWidening where the table's protocol, and SQL, say typeWidening.
        feature = required[1][0].lower() + required[1][1:]
        return AdapterError(
            UNSUPPORTED,
            f"the table asks its readers for {feature!r}, which deltalake cannot read",
            table.where,
            f"start Spark with Delta, which may know it (tables.{table.name}.delta_reader = 'spark'); or drop the "
            f"feature (ALTER TABLE … DROP FEATURE {feature}), or sync a copy of the table without it",
        )
    fix = "see that the files are there, whole, and may be read; the table is tried again with a growing delay"
    return AdapterError("table-unreadable", said, table.where, fix)


@contextmanager
def reading(table: TableSettings) -> Iterator[None]:
    """Raise errors of missing or unreadable files as an `AdapterError` with the table."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, pa.ArrowInvalid, OSError) as error:
        raise unreadable(table, error) from error


def shape_of(table: TableSettings, schema: str) -> Shape:
    """A table's shape, from its schema as Delta writes it."""
    return Shape(table.name, StructType.fromJson(json.loads(schema)), table.key)


def maps_columns(delta: DeltaTable) -> bool:
    """Whether columns have other names in the files than in the table."""
    return configuration(delta).get(MAPPING_SETTING, "none") != "none"


def configuration(delta: DeltaTable) -> Mapping[str, str]:
    """The table's properties."""
    properties: Mapping[str, str] = delta.metadata().configuration
    return properties
