"""The rows and the record of one client, and the three ways they change: a mutation, a poke, a reset by the server.

No network and no clock. Each change is made durable before views show it, so a restart never loses what a view has
shown.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from protocol import values
from protocol.errors import CodecError
from protocol.sync.downstream import DelRow, PutRow, UpdateRow
from reference_cache.client.errors import ClientError
from reference_cache.client.local.draft import Draft, RowId
from reference_cache.client.local.mutators import Mutator, run_now
from reference_cache.client.local.tables import LocalTables
from reference_cache.client.local.transaction import Reason, Transaction
from reference_cache.client.merged_poke import MergedPoke, merge_poke
from reference_cache.client.pokes import Poke, PokeError, check_follows
from reference_cache.client.store import ClientIdentity, LocalStore, QueuedMutation, Record, RecordChange, RowWrite
from reference_cache.zql.nearest import unknown
from reference_cache.zql.schema import Row, Schema
from service_kit.logs import event, logger

log = logger("cache.client")


@dataclass(slots=True)
class Applied:
    """A poke's effect on mutations: confirmed ones, results received, and ids whose results the server has deleted."""

    confirmed: list[QueuedMutation] = field(default_factory=list)
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    forgotten: set[int] = field(default_factory=set)


class ServerRows:
    """Translates rows from the server's names to a schema's. Unknown columns are dropped; missing ones are null."""

    def __init__(self, schema: Schema) -> None:
        self._tables = {table.server_name or name: name for name, table in schema.tables.items()}
        self._columns = {
            name: tuple(table.server_columns.get(column, column) for column in table.columns)
            for name, table in schema.tables.items()
        }

    def table(self, server_name: str) -> str | None:
        """The schema's name of a server table; None if the schema does not have it."""
        return self._tables.get(server_name)

    def row(self, table: str, values: Mapping[str, Any]) -> Row:
        return tuple([values.get(column) for column in self._columns[table]])

    def updated(self, table: str, old: Row | None, patch: UpdateRow) -> Row:
        """The row after an `update` patch: columns outside `constrain` become null, those of `merge` change."""
        columns = self._columns[table]
        values: dict[str, Any] = {} if old is None else dict(zip(columns, old, strict=True))
        if patch.constrain is not None:
            values = {column: value for column, value in values.items() if column in patch.constrain}
        return self.row(table, {**values, **(patch.merge or {}), **patch.id})


class LocalState:
    """Invariant: views show the server's rows at `record.cookie` with `record.queue` applied in order."""

    def __init__(self, schema: Schema, mutators: Mapping[str, Mutator], store: LocalStore) -> None:
        self.schema = schema
        self._mutators = mutators
        self._store = store
        self._server_rows = ServerRows(schema)
        # Replaced by `become_new_client`; otherwise changed in place.
        self.record, rows = store.load(schema)
        self.tables = LocalTables(schema, rows)
        self.tables.rebase({}, self._replay)

    def mutate(self, name: str, args: Any, now: int) -> tuple[QueuedMutation, Any]:
        """Run a mutator and queue the mutation; returns it and the mutator's result.

        `now` in milliseconds since the epoch. Raises what the mutator or the store raises; then nothing is queued.
        """
        mutator = self._mutators.get(name)
        if mutator is None:
            raise ClientError("unknown-mutator", unknown("mutator", name, self._mutators), name)
        args = _json(name, args)
        mutation = QueuedMutation(self.record.newest_mutation_id + 1, name, args, now)
        draft = self.tables.draft()
        transaction = self._transaction(draft, "optimistic")
        returned = run_now(name, mutator, transaction, args)
        self._enqueue(mutation)
        self.tables.adopt(draft, transaction.written)
        return mutation, returned

    def _enqueue(self, mutation: QueuedMutation) -> None:
        record = self.record
        record.queue.append(mutation)
        record.newest_mutation_id += 1
        try:
            self._store.save(record, RecordChange(queued=mutation))
        except BaseException:
            record.queue.pop()
            record.newest_mutation_id -= 1
            raise

    def apply(self, poke: Poke) -> Applied:
        """Apply a poke; raises `PokeError` and changes nothing if it cannot be applied."""
        record = self.record
        check_follows(poke, record.cookie)
        if poke.cookie == poke.base:
            return Applied()
        merged = merge_poke(poke, record.identity.client_id)
        confirmed = merged.last_mutation_id
        if confirmed is not None and confirmed < record.last_mutation_id:
            raise PokeError(f"mutation {confirmed} is confirmed after mutation {record.last_mutation_id}")
        changes = self._changes(merged)
        self._advance(poke.cookie, merged)
        applied = Applied(self._confirm(confirmed), merged.results, merged.forgotten)
        rows = [RowWrite(table, key, row) for (table, key), row in changes.items()]
        self._store.save(record, RecordChange(merged.cleared, rows))
        self.tables.rebase(changes, self._replay)
        return applied

    def forget_server(self) -> None:
        """Drop the server's rows, cookie and queries; the queue stays. For a cookie that the server does not know."""
        self.record.forget_server()
        self._clear()

    def become_new_client(self) -> list[QueuedMutation]:
        """Start over with new ids; returns the dropped queue. For a client id that the server does not know."""
        lost = self.record.queue
        self.record = Record(ClientIdentity.new())
        self._clear()
        return lost

    def close(self) -> None:
        self._store.close()

    def _clear(self) -> None:
        deletions: dict[RowId, Row | None] = dict.fromkeys(self.tables.server_row_ids())
        self._store.save(self.record, RecordChange(cleared=True))
        self.tables.rebase(deletions, self._replay)

    def _advance(self, cookie: str, merged: MergedPoke) -> None:
        record = self.record
        if merged.cleared:
            record.forget_server()
        record.cookie = cookie
        record.desired = (record.desired | merged.desired) - merged.undesired
        record.got = (record.got | merged.got) - merged.ungot

    def _confirm(self, last: int | None) -> list[QueuedMutation]:
        record = self.record
        if last is None:
            return []
        confirmed = [mutation for mutation in record.queue if mutation.id <= last]
        record.queue = [mutation for mutation in record.queue if mutation.id > last]
        record.last_mutation_id = last
        record.newest_mutation_id = max(record.newest_mutation_id, last)
        return confirmed

    def _changes(self, merged: MergedPoke) -> dict[RowId, Row | None]:
        """The poke's new server rows under the client's names; tables outside the schema are skipped."""
        changes: dict[RowId, Row | None] = {}
        if merged.cleared:
            changes.update(dict.fromkeys(self.tables.server_row_ids()))
        for patch in merged.rows:
            table = self._server_rows.table(patch.table_name)
            if table is not None:
                self._patch(changes, table, patch)
        return changes

    def _patch(self, changes: dict[RowId, Row | None], table: str, patch: PutRow | DelRow | UpdateRow) -> None:
        values = patch.value if isinstance(patch, PutRow) else patch.id
        row = self._server_rows.row(table, values)
        row_id = table, self.tables.key(table, row)
        if row_id[1] is None:
            raise PokeError(f"a row of table {table!r} comes without its key: {values!r}")
        if isinstance(patch, UpdateRow):
            old = changes[row_id] if row_id in changes else self.tables.server_row(row_id)
            row = self._server_rows.updated(table, old, patch)
        changes[row_id] = None if isinstance(patch, DelRow) else row

    def _transaction(self, draft: Draft, reason: Reason) -> Transaction:
        return Transaction(self.schema, draft, self.tables.row_id, reason)

    def _replay(self, draft: Draft) -> set[RowId]:
        """Run the unconfirmed mutations again, in order; one that raises is undone here and left to the server."""
        written: set[RowId] = set()
        for mutation in self.record.queue:
            mutator = self._mutators.get(mutation.name)
            if mutator is None:
                continue
            transaction = self._transaction(draft, "rebase")
            try:
                run_now(mutation.name, mutator, transaction, mutation.args)
            except Exception as error:
                transaction.undo()
                event(
                    log,
                    logging.WARNING,
                    "mutation could not be replayed",
                    mutator=mutation.name,
                    id=mutation.id,
                    error=repr(error),
                )
            written |= transaction.written
        return written


def _json(name: str, args: Any) -> Any:
    """The arguments after a round trip through JSON, as the server will see them."""
    try:
        return values.loads(values.dumps(args))
    except CodecError as error:
        raise ClientError("bad-arguments", str(error), name, "pass values that JSON can express") from None
