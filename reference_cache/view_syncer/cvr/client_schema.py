"""Whether the client's schema fits the replica's tables; everything that does not fit, in one message.

The message repeats only what the client named: clients must not learn which other tables there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakValueDictionary

from protocol.sync.errors import ErrorKind, SyncError
from protocol.sync.messages import ClientSchema, ClientTable
from reference_cache.replica.schema import ReplicaSchema, ReplicaTable


class KnownSchemas:
    """The clients' schemas, each kept once while it is in use: many clients have the same."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[str, ClientSchema] = WeakValueDictionary()

    def shared(self, schema: ClientSchema) -> ClientSchema:
        """This schema, or an equal one that is in use."""
        return self._known.setdefault(schema.model_dump_json(), schema)


def check_client_schema(client: ClientSchema, replica: ReplicaSchema) -> None:
    """Raise `SyncError` if the client's schema does not fit."""
    if not replica.tables and not replica.unsynced:
        raise SyncError(
            ErrorKind.INTERNAL,
            "No tables have been synced from upstream. Please check that ZERO_UPSTREAM_DB is set properly.",
        )
    problems = list(_problems(client, replica))
    if problems:
        raise SyncError(ErrorKind.SCHEMA_VERSION_NOT_SUPPORTED, "\n".join(problems))


def _problems(client: ClientSchema, replica: ReplicaSchema) -> Iterator[str]:
    for name in sorted(client.tables.keys() - replica.tables.keys()):
        if name in replica.unsynced:
            yield f'The "{name}" table is missing a primary key or non-null unique index and thus cannot be synced'
        else:
            yield f'The "{name}" table does not exist or is not one of the replicated tables.'
    for name in sorted(client.tables.keys() & replica.tables.keys()):
        yield from _table_problems(name, client.tables[name], replica.tables[name])


def _table_problems(name: str, client: ClientTable, table: ReplicaTable) -> Iterator[str]:
    for column in sorted(client.columns.keys() - table.columns.keys()):
        yield f'The "{name}"."{column}" column does not exist or is not one of the replicated columns.'
    for column in sorted(client.columns.keys() & table.columns.keys()):
        ours, theirs = table.columns[column].type, client.columns[column].type
        if ours != theirs:
            yield f'The "{name}"."{column}" column\'s upstream type "{ours}" does not match the client type "{theirs}"'
    if set(client.primary_key) not in [set(key) for key in table.keys]:
        key = ",".join(client.primary_key)
        yield f'The "{name}" table\'s primaryKey <{key}> is not associated with a non-null unique index.'
