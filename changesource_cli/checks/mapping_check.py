"""Whether mappings fit the upstream's tables, for `changesource doctor`: names, keys, and SQL expressions by Spark.

If the tables cannot be read, mappings are not checked; another check reports why.
"""

from __future__ import annotations

from changesource_cli.adapter_choice import resolve
from changesource_sdk.config import ServeConfig
from changesource_sdk.contract import checked_tables
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.pipeline.adapter_factory import adapter_factory, opened
from changesource_sdk.pipeline.mapping.declare import load_mappings
from changesource_sdk.pipeline.mapping.table import MappedTable, map_tables


def check_mappings(config: ServeConfig) -> str:
    """Return a summary of mappings that fit. Raises `ChangesourceError` for one that does not."""
    mappings = load_mappings(config.mapping, config.mappings)
    if not mappings:
        return "none, tables appear as they are"
    if not config.adapter:
        return "no adapter is named, not checked"
    try:
        with opened(adapter_factory(resolve(config.adapter), config.settings)) as adapter:
            tables = checked_tables(adapter.tables())
    except ChangesourceError:
        return "not checked, the tables cannot be read"
    mapped = map_tables(tables, mappings).values()
    in_sql = [table for table in mapped if table.mapping.sql]
    if in_sql:
        _check_sql(in_sql)
    expressions = sum(len(table.mapping.sql) for table in in_sql)
    return f"of {', '.join(mappings)}: fit the tables, {expressions} expressions in SQL"


def _check_sql(tables: list[MappedTable]) -> None:
    from changesource_sdk.pipeline.spark.session import spark_session
    from changesource_sdk.pipeline.spark.sql.mapping import check_sql

    for table in tables:
        check_sql(spark_session(), table)
