"""Composing pokes: patches in, text frames out. Pure.

A poke is `pokeStart`, parts, `pokeEnd`. Row patches arrive encoded, once for all groups; `row_chunks` joins them to the
bodies of parts, which may be used in any number of pokes, and `compose` wraps bodies for one poke.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from protocol import values
from reference_cache.view_syncer.api import Outgoing
from reference_cache.view_syncer.cvr.config import QueryOp

MAX_PATCHES = 100
MAX_BYTES = 1 << 20
"""Where a part ends: whichever comes first."""


@dataclass(slots=True)
class PokeContent:
    """What a poke contains. `mutations` are whole patches; `rows` are bodies made by `row_chunks`."""

    desired: Mapping[str, Sequence[QueryOp]] = field(default_factory=dict)
    got: Sequence[QueryOp] = ()
    last_mutation_ids: Mapping[str, int] = field(default_factory=dict)
    mutations: Sequence[Mapping[str, Any]] = ()
    rows: Sequence[bytes] = ()


def row_chunks(patches: Iterable[bytes]) -> list[bytes]:
    """The members of `rowsPatch`, joined, for one part each."""
    chunks: list[bytes] = []
    members: list[bytes] = []
    size = 0
    for patch in patches:
        if members and (len(members) == MAX_PATCHES or size + len(patch) > MAX_BYTES):
            chunks.append(b",".join(members))
            members, size = [], 0
        members.append(patch)
        size += len(patch)
    if members:
        chunks.append(b",".join(members))
    return chunks


def compose(base: str | None, cookie: str, content: PokeContent) -> Outgoing:
    """The frames of a poke from the cookie `base` to `cookie`."""
    poke_id = values.dumps(cookie)
    start = b'["pokeStart",{"pokeID":%b,"baseCookie":%b}]' % (poke_id, values.dumps(base))
    end = b'["pokeEnd",{"pokeID":%b,"cookie":%b}]' % (poke_id, poke_id)
    return Outgoing((start, *_parts(poke_id, content), end))


def _parts(poke_id: bytes, content: PokeContent) -> list[bytes]:
    fields = _fields(content)
    rows = [b'"rowsPatch":[%b]' % chunk for chunk in content.rows]
    if rows and fields:
        rows[0] = b",".join((fields, rows[0]))
    elif fields:
        rows = [fields]
    return [b'["pokePart",{"pokeID":%b,%b}]' % (poke_id, body) for body in rows]


def _fields(content: PokeContent) -> bytes:
    """Everything but rows, as members of a JSON object."""
    fields: dict[str, object] = {}
    if content.last_mutation_ids:
        fields["lastMutationIDChanges"] = dict(content.last_mutation_ids)
    if content.desired:
        fields["desiredQueriesPatches"] = {client: _query_ops(ops) for client, ops in content.desired.items()}
    if content.got:
        fields["gotQueriesPatch"] = _query_ops(content.got)
    if content.mutations:
        fields["mutationsPatch"] = list(content.mutations)
    return values.dumps(fields)[1:-1]


def _query_ops(ops: Sequence[QueryOp]) -> list[dict[str, str]]:
    return [{"op": op, "hash": hash} for op, hash in ops]
