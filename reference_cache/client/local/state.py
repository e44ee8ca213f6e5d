"""Rows, queue and record of one client, and the three ways they change: a mutation, a poke, a server that forgot.

No network and no clock: this is what a client is while it is offline. Each change is made durable first and shown
second, so that whatever a view has shown is still there after the process has ended.
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
from reference_cache.client.local.draft import Draft, Place
from reference_cache.client.local.mutators import Mutator, run_now
from reference_cache.client.local.server_rows import ServerRows
from reference_cache.client.local.tables import LocalTables
from reference_cache.client.local.transaction import Reason, Transaction
from reference_cache.client.poke_content import PokeContent, read_poke
from reference_cache.client.pokes import Poke, PokeError, check_follows
from reference_cache.client.store import Identity, LocalStore, QueuedMutation, Record, RowWrite, Step
from reference_cache.zql.nearest import unknown
from reference_cache.zql.schema import Row, Schema
from service_kit.logs import event, logger

log = logger("cache.client")


@dataclass(slots=True)
class Applied:
    """What a poke meant for mutations: those it confirmed, and the results it told or took back, by id."""

    confirmed: list[QueuedMutation] = field(default_factory=list)
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    forgotten: set[int] = field(default_factory=set)


class LocalState:
    """Invariant: what is shown is the server's rows at `record.cookie` with `record.queue` applied in order."""

    def __init__(self, schema: Schema, mutators: Mapping[str, Mutator], store: LocalStore) -> None:
        self.schema = schema
        self._mutators = mutators
        self._store = store
        self._server_rows = ServerRows(schema)
        self.record, rows = store.load(schema)
        self.tables = LocalTables(schema, rows)
        self.tables.rebase({}, self._replay)

    def mutate(self, name: str, args: Any, now: int) -> tuple[QueuedMutation, Any]:
        """Run a mutator and queue the mutation; what the mutator raises is raised, and nothing is queued."""
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
            self._store.save(record, Step(queued=mutation))
        except BaseException:
            record.queue.pop()
            record.newest_mutation_id -= 1
            raise

    def apply(self, poke: Poke) -> Applied:
        """Move to the poke's cookie; raises `PokeError` with nothing changed."""
        record = self.record
        check_follows(poke, record.cookie)
        if poke.cookie == poke.base:
            return Applied()
        content = read_poke(poke, record.identity.client_id)
        confirmed = content.last_mutation_id
        if confirmed is not None and confirmed < record.last_mutation_id:
            raise PokeError(f"mutation {confirmed} is confirmed after mutation {record.last_mutation_id}")
        changes = self._changes(content)
        self._advance(poke.cookie, content)
        applied = Applied(self._confirm(confirmed), content.results, content.forgotten)
        rows = [RowWrite(table, key, row) for (table, key), row in changes.items()]
        self._store.save(record, Step(content.cleared, rows))
        self.tables.rebase(changes, self._replay)
        return applied

    def forget_server(self) -> None:
        """The server does not know this client's cookie: its data are void, and the queue stays."""
        self.record.forget_server()
        self._clear()

    def begin_anew(self) -> list[QueuedMutation]:
        """The server does not know this client at all: it becomes another, and what was queued is returned."""
        lost = self.record.queue
        self.record = Record(Identity.new())
        self._clear()
        return lost

    def close(self) -> None:
        self._store.close()

    def _clear(self) -> None:
        gone: dict[Place, Row | None] = dict.fromkeys(self.tables.server_places())
        self._store.save(self.record, Step(cleared=True))
        self.tables.rebase(gone, self._replay)

    def _advance(self, cookie: str, content: PokeContent) -> None:
        record = self.record
        if content.cleared:
            record.forget_server()
        record.cookie = cookie
        record.desired = (record.desired | content.desired) - content.undesired
        record.got = (record.got | content.got) - content.ungot

    def _confirm(self, last: int | None) -> list[QueuedMutation]:
        record = self.record
        if last is None:
            return []
        confirmed = [mutation for mutation in record.queue if mutation.id <= last]
        record.queue = [mutation for mutation in record.queue if mutation.id > last]
        record.last_mutation_id = last
        record.newest_mutation_id = max(record.newest_mutation_id, last)
        return confirmed

    def _changes(self, content: PokeContent) -> dict[Place, Row | None]:
        """What the poke makes of the server's rows, under the client's names; tables it does not know are left out."""
        changes: dict[Place, Row | None] = {}
        if content.cleared:
            changes.update(dict.fromkeys(self.tables.server_places()))
        for patch in content.rows:
            table = self._server_rows.table(patch.table_name)
            if table is not None:
                self._patch(changes, table, patch)
        return changes

    def _patch(self, changes: dict[Place, Row | None], table: str, patch: PutRow | DelRow | UpdateRow) -> None:
        given = patch.value if isinstance(patch, PutRow) else patch.id
        row = self._server_rows.row(table, given)
        place = table, self.tables.key(table, row)
        if place[1] is None:
            raise PokeError(f"a row of table {table!r} comes without its key: {given!r}")
        if isinstance(patch, UpdateRow):
            old = changes[place] if place in changes else self.tables.server_row(place)
            row = self._server_rows.updated(table, old, patch)
        changes[place] = None if isinstance(patch, DelRow) else row

    def _transaction(self, draft: Draft, reason: Reason) -> Transaction:
        return Transaction(self.schema, draft, self.tables.place, reason)

    def _replay(self, draft: Draft) -> set[Place]:
        """Do the open mutations again, in order; one that cannot be done now is left to the server alone."""
        written: set[Place] = set()
        for mutation in self.record.queue:
            mutator = self._mutators.get(mutation.name)
            if mutator is None:
                continue
            transaction = self._transaction(draft, "rebase")
            try:
                run_now(mutation.name, mutator, transaction, mutation.args)
            except Exception as error:
                transaction.undo()
                event(log, logging.WARNING, "replay-failed", mutator=mutation.name, id=mutation.id, error=repr(error))
            written |= transaction.written
        return written


def _json(name: str, args: Any) -> Any:
    """The arguments as the server will see them, so that a mutator does the same here and there."""
    try:
        return values.loads(values.dumps(args))
    except CodecError as error:
        raise ClientError("bad-arguments", str(error), name, "give values that JSON can say") from None
