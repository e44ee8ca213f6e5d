"""The parts of a poke merged into one change for one client: its queries, its mutations, and the rows. Pure.

Parts are merged in order; for one key the last patch counts. A `clear` in any patch drops all rows and all queries,
because the official client keeps them in one key space and clears that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from protocol.sync.downstream import (
    Clear,
    DelRow,
    MutationPatch,
    PokePart,
    PutResult,
    PutRow,
    QueryPatch,
    UpdateRow,
)
from reference_cache.client.pokes import Poke


@dataclass(slots=True)
class MergedPoke:
    """The effect of a poke on one client. Invariant: a query is in at most one of `desired` and `undesired`, and of
    `got` and `ungot`. Only `merge_poke` writes it.
    """

    # Whether everything the client had is dropped before the rest applies.
    cleared: bool = False
    # The client's new last mutation id; None if it did not change.
    last_mutation_id: int | None = None
    # Query hashes, put and deleted.
    desired: set[str] = field(default_factory=set)
    undesired: set[str] = field(default_factory=set)
    got: set[str] = field(default_factory=set)
    ungot: set[str] = field(default_factory=set)
    # Row patches in order; several may concern one row.
    rows: list[PutRow | DelRow | UpdateRow] = field(default_factory=list)
    # Results of this client's mutations by mutation id.
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    # Mutation ids whose results the server has deleted.
    forgotten: set[int] = field(default_factory=set)

    def add(self, part: PokePart, client_id: str) -> None:
        confirmed = part.last_mutation_id_changes.get(client_id)
        if confirmed is not None:
            self.last_mutation_id = int(confirmed)
        self._queries(part.desired_queries_patches.get(client_id, ()), self.desired, self.undesired)
        self._queries(part.got_queries_patch, self.got, self.ungot)
        for row in part.rows_patch:
            if isinstance(row, Clear):
                self._clear()
            else:
                self.rows.append(row)
        for result in part.mutations_patch:
            self._result(result, client_id)

    def _queries(self, patch: Iterable[QueryPatch], put: set[str], deleted: set[str]) -> None:
        for change in patch:
            if isinstance(change, Clear):
                self._clear()
                continue
            into, out_of = (put, deleted) if change.op == "put" else (deleted, put)
            into.add(change.hash)
            out_of.discard(change.hash)

    def _result(self, patch: MutationPatch, client_id: str) -> None:
        if isinstance(patch, Clear):
            self._clear()
        elif isinstance(patch, PutResult):
            if patch.mutation.id.client_id == client_id:
                self.results[int(patch.mutation.id.id)] = patch.mutation.result
        elif patch.id.client_id == client_id:
            self.forgotten.add(int(patch.id.id))

    def _clear(self) -> None:
        self.cleared = True
        self.rows.clear()
        for queries in (self.desired, self.undesired, self.got, self.ungot):
            queries.clear()


def merge_poke(poke: Poke, client_id: str) -> MergedPoke:
    """Merge a poke's parts for one client."""
    merged = MergedPoke()
    for part in poke.parts:
        merged.add(part, client_id)
    return merged
