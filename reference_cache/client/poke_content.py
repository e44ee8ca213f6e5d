"""A poke read for one client: what it says of the client's own queries and mutations, and its row patches. Pure.

Parts are read in order, and for one key the last word counts. A `clear` in any patch voids everything the client has,
rows and queries alike, because the official client keeps all of it in one place.
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
class PokeContent:
    """What a poke says to one client. Invariant: a query is in at most one of a pair (`desired`, `undesired`)."""

    cleared: bool = False
    last_mutation_id: int | None = None
    desired: set[str] = field(default_factory=set)
    undesired: set[str] = field(default_factory=set)
    got: set[str] = field(default_factory=set)
    ungot: set[str] = field(default_factory=set)
    rows: list[PutRow | DelRow | UpdateRow] = field(default_factory=list)
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    forgotten: set[int] = field(default_factory=set)

    def take(self, part: PokePart, client_id: str) -> None:
        """Read one more part."""
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

    def _queries(self, patch: Iterable[QueryPatch], there: set[str], gone: set[str]) -> None:
        for change in patch:
            if isinstance(change, Clear):
                self._clear()
                continue
            into, out_of = (there, gone) if change.op == "put" else (gone, there)
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


def read_poke(poke: Poke, client_id: str) -> PokeContent:
    """Everything a poke says to a client."""
    content = PokeContent()
    for part in poke.parts:
        content.take(part, client_id)
    return content
