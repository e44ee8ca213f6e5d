"""Whether mappings fit the upstream's tables, for `changesource doctor`: names, keys, and SQL expressions by Spark.

If the tables cannot be read, mappings are not checked; another check reports why.
"""

from __future__ import annotations

from changesource_cli.adapter_choice import source_specs
from changesource_sdk.config import ServeConfig
from changesource_sdk.contract import checked_tables
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.pipeline.adapter_factory import adapter_factory, opened
from changesource_sdk.pipeline.mapping.table import MappedTable, map_tables
from changesource_sdk.pipeline.source import SourceSpec

NONE = "none, tables appear as they are"


def check_mappings(config: ServeConfig) -> str:
    """Return a summary of mappings that fit. Raises `ChangesourceError` for one that does not."""
    if not config.adapter and not config.sources:
        return "no adapter is named, not checked" if config.mapping or config.mappings else NONE
    summaries = [(source.name, _check_source(source)) for source in source_specs(config)]
    if len(summaries) == 1:
        return summaries[0][1]
    return "; ".join(f"{name}: {summary}" for name, summary in summaries if summary != NONE) or NONE


def _check_source(source: SourceSpec) -> str:
    mappings = source.loaded_mappings()
    if not mappings:
        return NONE
    try:
        with opened(adapter_factory(source.adapter, source.settings)) as adapter:
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
