"""Client groups in the CVR file: configuration, memberships, and what returning clients need."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from protocol.sync import ast_json
from protocol.sync.messages import ClientSchema
from reference_cache.view_syncer.cvr.client_schema import KnownSchemas
from reference_cache.view_syncer.cvr.config import Desire, GroupConfig, GroupEdit, QueryConfig, definition
from reference_cache.view_syncer.cvr.file import CvrFile
from reference_cache.view_syncer.cvr.owner import GroupOwner


@dataclass(slots=True)
class Membership:
    """That a recorded query is or was part of a group's view, with versions of the view.

    `since` is when the group first got it, `got` when it last got it, `removed` when it last lost it (None: it has
    not); `epoch` is the query's at `got`. Written by `GroupView`.
    """

    query: int
    since: str
    got: str
    epoch: int
    removed: str | None = None


@dataclass(slots=True)
class StoredGroup:
    """Everything the file has about a group. `ttl_clock` is the time when it was stored, in milliseconds."""

    config: GroupConfig
    user_id: str | None
    client_schema: ClientSchema
    owner: GroupOwner
    ttl_clock: float = 0.0
    memberships: dict[int, Membership] = field(default_factory=dict)


class GroupStore:
    """The groups in the file. Calls that write must be made inside a transaction of the file."""

    def __init__(self, file: CvrFile) -> None:
        self._file = file
        self._schemas = KnownSchemas()

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._file.connection

    def load(self, group_id: str) -> StoredGroup | None:
        """A group as it was last stored; None if there is none."""
        sql = "SELECT version, user_id, client_schema, ttl_clock FROM groups WHERE id = ?"
        row = self._connection.execute(sql, (group_id,)).fetchone()
        if row is None:
            return None
        version, user_id, schema, ttl_clock = row
        queries = self._queries(group_id)
        config = GroupConfig(group_id, version, self._clients(group_id), queries)
        config.definition_bytes = sum(query.size for query in config.wanted())
        config.desire_count = sum(len(query.desires) for query in queries.values())
        memberships = {each.query: each for each in self._memberships(group_id)}
        client_schema = self._schemas.shared(ClientSchema.model_validate_json(schema))
        return StoredGroup(config, user_id, client_schema, self._owner(group_id), ttl_clock, memberships)

    def new(self, group_id: str, user_id: str | None, client_schema: ClientSchema, owner: GroupOwner) -> StoredGroup:
        """A group that `create` will store."""
        return StoredGroup(GroupConfig(group_id), user_id, self._schemas.shared(client_schema), owner)

    def _owner(self, group_id: str) -> GroupOwner:
        sql = "SELECT verified, salt, digests FROM group_owners WHERE group_id = ?"
        row = self._connection.execute(sql, (group_id,)).fetchone()
        if row is None:
            return GroupOwner(is_unknown=True)
        verified, salt, digests = row
        return GroupOwner(bool(verified), salt, tuple(bytes.fromhex(each) for each in orjson.loads(digests)))

    def _clients(self, group_id: str) -> set[str]:
        sql = "SELECT client_id FROM clients WHERE group_id = ?"
        return {client_id for (client_id,) in self._connection.execute(sql, (group_id,))}

    def _queries(self, group_id: str) -> dict[str, QueryConfig]:
        sql = "SELECT hash, definition, version, got, deleted FROM group_queries WHERE group_id = ?"
        queries = {
            hash: QueryConfig(hash, *_defined(text), version, bool(got), bool(deleted), size=len(hash) + len(text))
            for hash, text, version, got, deleted in self._connection.execute(sql, (group_id,))
        }
        sql = "SELECT hash, client_id, ttl, version, inactivated_at FROM desires WHERE group_id = ?"
        for hash, client_id, ttl, version, inactivated_at in self._connection.execute(sql, (group_id,)):
            queries[hash].desires[client_id] = Desire(ttl, version, inactivated_at)
        return queries

    def _memberships(self, group_id: str) -> Iterator[Membership]:
        sql = "SELECT query, since, got, epoch, removed FROM memberships WHERE group_id = ?"
        return (Membership(*row) for row in self._connection.execute(sql, (group_id,)).fetchall())

    def last_patch(self, group_id: str) -> str:
        """The newest version at which rows of the group's queries changed."""
        sql = (
            "SELECT max(last_patch) FROM memberships JOIN queries ON id = query WHERE group_id = ? AND removed IS NULL"
        )
        return self._connection.execute(sql, (group_id,)).fetchone()[0] or ""

    def create(self, group: StoredGroup, data_version: str, now: float) -> None:
        """Store a new group. Older cookies, of a deleted group with the same id, are not valid for it."""
        schema = group.client_schema.model_dump_json()
        config = group.config
        row = (config.group_id, config.version, group.user_id, schema, group.ttl_clock, now, data_version)
        self._connection.execute("INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self.save_owner(config.group_id, group.owner)

    def save_owner(self, group_id: str, owner: GroupOwner) -> None:
        """Store who may join a group."""
        digests = orjson.dumps([each.hex() for each in owner.digests]).decode()
        row = (group_id, owner.verified, owner.salt, digests)
        self._connection.execute("REPLACE INTO group_owners VALUES (?, ?, ?, ?)", row)

    def touch(self, group_id: str, ttl_clock: float, now: float) -> None:
        """Store when a group was last in use, in seconds since the epoch, and its TTL clock."""
        sql = "UPDATE groups SET ttl_clock = ?, last_active = ? WHERE id = ?"
        self._connection.execute(sql, (ttl_clock, now, group_id))

    def save(self, edit: GroupEdit, ttl_clock: float, memberships: Iterable[Membership] = ()) -> None:
        """Store what an edit has changed."""
        config = edit.config
        group_id = config.group_id
        sql = "UPDATE groups SET version = ?, ttl_clock = ? WHERE id = ?"
        self._connection.execute(sql, (config.version, ttl_clock, group_id))
        for client_id in edit.touched_clients:
            there = client_id in config.clients
            sql = (
                "REPLACE INTO clients VALUES (?, ?)"
                if there
                else "DELETE FROM clients WHERE (group_id, client_id) = (?, ?)"
            )
            self._connection.execute(sql, (group_id, client_id))
        self._connection.executemany(
            "REPLACE INTO group_queries VALUES (?, ?, ?, ?, ?, ?)",
            [(group_id, *_query_row(config.queries[hash])) for hash in edit.new_queries],
        )
        known = [config.queries[hash] for hash in edit.touched_queries - edit.new_queries]
        self._connection.executemany(
            "UPDATE group_queries SET version = ?, got = ?, deleted = ? WHERE group_id = ? AND hash = ?",
            [(query.version, query.got, query.deleted, group_id, query.hash) for query in known],
        )
        self._connection.executemany(
            "REPLACE INTO desires VALUES (?, ?, ?, ?, ?, ?)",
            [(group_id, *_desire_row(config, client_id, hash)) for client_id, hash in edit.touched_desires],
        )
        self._connection.executemany(
            "REPLACE INTO memberships (group_id, query, since, got, epoch, removed) VALUES (?, ?, ?, ?, ?, ?)",
            [(group_id, each.query, each.since, each.got, each.epoch, each.removed) for each in memberships],
        )

    def drop_results(self, results: Iterable[tuple[str, str, int]], version: str) -> None:
        """Record that mutation results (group, client, mutation) were deleted, for groups that exist."""
        sql = "REPLACE INTO dropped_results SELECT id, ?, ?, ? FROM groups WHERE id = ?"
        self._connection.executemany(sql, [(client, mutation, version, group) for group, client, mutation in results])

    def dropped_results(self, group_id: str, version: str) -> list[tuple[str, int, str]]:
        """Client, mutation and version of the results that were deleted after a version."""
        sql = "SELECT client_id, mutation_id, version FROM dropped_results WHERE group_id = ? AND version > ?"
        return self._connection.execute(sql, (group_id, version)).fetchall()

    def idle_since(self, time: float) -> list[str]:
        """The groups that were last in use before a time, longest unused first."""
        sql = "SELECT id FROM groups WHERE last_active < ? ORDER BY last_active"
        return [group for (group,) in self._connection.execute(sql, (time,))]

    def delete(self, group_id: str) -> None:
        """Delete a group; a client of it that returns starts over."""
        for table in ("clients", "group_queries", "desires", "memberships", "dropped_results", "group_owners"):
            self._connection.execute(f"DELETE FROM {table} WHERE group_id = ?", (group_id,))
        self._connection.execute("DELETE FROM groups WHERE id = ?", (group_id,))


def _query_row(query: QueryConfig) -> tuple[Any, ...]:
    text = definition(query.ast, query.name, query.args).decode()
    return query.hash, text, query.version, query.got, query.deleted


def _defined(text: str) -> tuple[Any, str | None, list[Any]]:
    ast, name, args = orjson.loads(text)
    return None if ast is None else ast_json.parse(ast), name, args


def _desire_row(config: GroupConfig, client_id: str, hash: str) -> tuple[Any, ...]:
    desire = config.queries[hash].desires[client_id]
    return hash, client_id, desire.ttl, desire.version, desire.inactivated_at
