"""The check that ends an initial sync: are the tables there that every cache needs beside the application's own?"""

from __future__ import annotations

from protocol.stream_rules.required_tables import required_tables
from reference_cache.replica.errors import CannotApply
from reference_cache.replica.schema import ReplicaSchema
from reference_cache.replica.stored_catalog import Origin


def check_required_tables(schema: ReplicaSchema, origin: Origin) -> None:
    """`CannotApply` names the first table or column that is missing or of another type."""
    for name, columns in required_tables(origin.app_id, origin.shard_num).items():
        table = schema.tables.get(name)
        if table is None:
            raise CannotApply(f"the initial sync has no table {name!r} with a key; the source must send it")
        for column, wanted in columns.items():
            found = table.columns.get(column)
            if found is None or found.type != wanted:
                raise CannotApply(f"{name}.{column} must be a {wanted}; the source sent {found or 'no such column'}")
