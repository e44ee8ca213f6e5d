"""The tables that every consumer needs in addition to the application's own, and what is missing of them.

zero-cache checks them when an initial sync ends and exits if one is not as it should be. `mutations.result` is not part
of its check but is what it reads for clients, and without a row in `permissions` every client connection fails.
"""

from collections.abc import Iterator, Mapping

from protocol.data_types import ZqlType
from protocol.rules.replica import CheckedReplica, CheckedTable
from protocol.stream.order import Problem


def required_tables(app_id: str, shard_num: int) -> Mapping[str, Mapping[str, ZqlType]]:
    """Replica table name to its columns and their types."""
    shard = f"{app_id}_{shard_num}"
    return {
        f"{shard}.clients": {
            "clientGroupID": "string",
            "clientID": "string",
            "lastMutationID": "number",
            "userID": "string",
        },
        f"{shard}.mutations": {
            "clientGroupID": "string",
            "clientID": "string",
            "mutationID": "number",
            "mutation": "json",
            "result": "json",
        },
        f"{app_id}.permissions": {"lock": "boolean", "permissions": "json", "hash": "string"},
    }


def missing(replica: CheckedReplica, app_id: str, shard_num: int) -> Iterator[Problem]:
    """What a complete initial sync lacks for this app and shard."""
    for name, columns in required_tables(app_id, shard_num).items():
        table = replica.tables.get(name)
        if table is None:
            yield Problem("required-table", f"{name} is missing")
            continue
        yield from _missing_columns(name, table, columns)
        if not replica.has_key(name):
            yield Problem("required-table", f"{name} has no unique index over not-null columns")
    permissions = replica.tables.get(f"{app_id}.permissions")
    if permissions is not None and permissions.rows is not None and len(permissions.rows) != 1:
        yield Problem("permissions-row", f"{app_id}.permissions has {len(permissions.rows)} rows instead of one")


def _missing_columns(name: str, table: CheckedTable, columns: Mapping[str, ZqlType]) -> Iterator[Problem]:
    for column, wanted in columns.items():
        spec = table.columns.get(column)
        if spec is None:
            yield Problem("required-table", f"{name}.{column} is missing")
        elif spec.zql_type != wanted:
            yield Problem("required-table", f"{name}.{column} is {spec.data_type}, clients need a {wanted}")
