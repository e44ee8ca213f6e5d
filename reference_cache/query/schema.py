"""The former import path of `reference_cache.zql.schema`."""

from reference_cache.zql.schema import hop, schema, table

__all__ = ["hop", "schema", "table"]
