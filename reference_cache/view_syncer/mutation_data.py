"""Confirmed mutations and their results: two tables of the application, sent to the group they belong to.

The application writes a client's last mutation id and the results of failed mutations with its own data, so they arrive
with the rows they belong to. They need no queries: a change names its group, and row versions say what happened after
a cookie. Only deleted results must be recorded (`GroupStore.drop_results`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from protocol.specs import VERSION_COLUMN
from reference_cache.replica.change_log import LoggedChange, SchemaChanged, Truncated
from reference_cache.replica.schema import ReplicaSchema
from reference_cache.zql.ivm.change import Remove
from service_kit.sqlite import quoted


@dataclass(slots=True)
class Confirmed:
    """What a group's clients get: last mutation ids, and patches of results. `version` is the newest of their rows."""

    last_mutation_ids: dict[str, int] = field(default_factory=dict)
    # Patches by client and mutation id: a later one replaces an earlier one. Written by the two methods below.
    results: dict[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)
    version: str = ""

    @property
    def mutations(self) -> list[Mapping[str, Any]]:
        return list(self.results.values())

    def put_result(self, client_id: str, mutation_id: int, result: Any) -> None:
        mutation = {"id": {"clientID": client_id, "id": mutation_id}, "result": result}
        self.results[client_id, mutation_id] = {"op": "put", "mutation": mutation}

    def drop_result(self, client_id: str, mutation_id: int) -> None:
        self.results[client_id, mutation_id] = {"op": "del", "id": {"clientID": client_id, "id": mutation_id}}


class MutationTables:
    """The two tables of an app's shard; if either is missing, nothing is ever confirmed in it."""

    def __init__(self, app_id: str, shard_num: int) -> None:
        self.clients = f"{app_id}_{shard_num}.clients"
        self.mutations = f"{app_id}_{shard_num}.mutations"

    def by_group(self, changes: Iterable[LoggedChange], schema: ReplicaSchema) -> dict[str, Confirmed]:
        """The confirmations in changes of the two tables, by group; changes of other tables are skipped."""
        groups: dict[str, Confirmed] = {}
        for _, table, change in changes:
            if table not in (self.clients, self.mutations) or isinstance(change, Truncated | SchemaChanged):
                continue
            row = dict(zip(schema.tables[table].engine_table.columns, change.node.row, strict=True))
            confirmed = groups.setdefault(row["clientGroupID"], Confirmed())
            if table == self.mutations:
                _note_result(confirmed, row, gone=isinstance(change, Remove))
            elif not isinstance(change, Remove):
                confirmed.last_mutation_ids[row["clientID"]] = int(row["lastMutationID"])
        return groups

    def since(self, connection: sqlite3.Connection, schema: ReplicaSchema, group_id: str, version: str) -> Confirmed:
        """What a group's clients lack that have seen everything up to a version of the data."""
        confirmed = Confirmed()
        for row in self._rows(connection, schema, self.clients, ("clientID", "lastMutationID"), group_id, version):
            confirmed.last_mutation_ids[row[0]] = int(row[1])
            confirmed.version = max(confirmed.version, row[2])
        for row in self._rows(
            connection, schema, self.mutations, ("clientID", "mutationID", "result"), group_id, version
        ):
            if row[2] is not None:
                confirmed.put_result(row[0], int(row[1]), orjson.loads(row[2]))
                confirmed.version = max(confirmed.version, row[3])
        return confirmed

    def _rows(
        self,
        connection: sqlite3.Connection,
        schema: ReplicaSchema,
        table: str,
        columns: tuple[str, ...],
        group_id: str,
        version: str,
    ) -> list[tuple[Any, ...]]:
        if table not in schema.tables:
            return []
        names = ", ".join(map(quoted, (*columns, VERSION_COLUMN)))
        where = f"{quoted('clientGroupID')} = ? AND {quoted(VERSION_COLUMN)} > ?"
        return connection.execute(f"SELECT {names} FROM {quoted(table)} WHERE {where}", (group_id, version)).fetchall()


def _note_result(confirmed: Confirmed, row: Mapping[str, Any], *, gone: bool) -> None:
    client_id, mutation_id = row["clientID"], int(row["mutationID"])
    if gone:
        confirmed.drop_result(client_id, mutation_id)
    elif row["result"] is not None:
        confirmed.put_result(client_id, mutation_id, row["result"])
