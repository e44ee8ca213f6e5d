"""The messages a cache may send on the sync socket, as a client reads them: `[tag, body]`, one JSON text frame each.

A client is more lenient than a server: unknown fields are dropped, because newer caches may send them. An unknown tag,
or a declared field of the wrong type, is a `CodecError`: what follows could not be trusted.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from protocol import values
from protocol.errors import CodecError
from protocol.validation import first_mistake

Json: TypeAlias = Any
Number: TypeAlias = int | float


def _alias(name: str) -> str:
    return to_camel(name).replace("Id", "ID")


class DownstreamBody(BaseModel):
    """A body or a part of one. Invariant: declared fields have their exact type; others were dropped."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, alias_generator=_alias)
    tag: ClassVar[str]


class Connected(DownstreamBody):
    """The connection is open; `wsid` is the one the client sent."""

    tag = "connected"
    wsid: str


class Pong(DownstreamBody):
    tag = "pong"


class PutRow(DownstreamBody):
    """The row with this key is this, whether or not there was one."""

    op: Literal["put"]
    table_name: str
    value: dict[str, Json]


class DelRow(DownstreamBody):
    """There is no row with this key."""

    op: Literal["del"]
    table_name: str
    id: dict[str, Json]


class UpdateRow(DownstreamBody):
    """Some columns of a row change; `constrain` names the columns to keep. Official caches never send it."""

    op: Literal["update"]
    table_name: str
    id: dict[str, Json]
    merge: dict[str, Json] | None = None
    constrain: list[str] | None = None


class Clear(DownstreamBody):
    """The client must discard everything it has, in any patch. Official caches never send it."""

    op: Literal["clear"]


RowPatch: TypeAlias = Annotated[PutRow | DelRow | UpdateRow | Clear, Field(discriminator="op")]


class QueryChange(DownstreamBody):
    """A query is among the desired, or got, from now on, or no longer."""

    op: Literal["put", "del"]
    hash: str


QueryPatch: TypeAlias = Annotated[QueryChange | Clear, Field(discriminator="op")]


class DownstreamMutationId(DownstreamBody):
    id: Number
    client_id: str


class MutationOutcome(DownstreamBody):
    id: DownstreamMutationId
    result: dict[str, Json]


class PutResult(DownstreamBody):
    """A mutation ended with this result; sent for those that failed."""

    op: Literal["put"]
    mutation: MutationOutcome


class DelResult(DownstreamBody):
    """The result of a mutation is forgotten, since the client has seen it."""

    op: Literal["del"]
    id: DownstreamMutationId


MutationPatch: TypeAlias = Annotated[PutResult | DelResult | Clear, Field(discriminator="op")]


class PokeStart(DownstreamBody):
    tag = "pokeStart"
    poke_id: str
    base_cookie: str | None


class PokePart(DownstreamBody):
    tag = "pokePart"
    poke_id: str
    last_mutation_id_changes: dict[str, Number] = Field(default_factory=dict)
    desired_queries_patches: dict[str, list[QueryPatch]] = Field(default_factory=dict)
    got_queries_patch: list[QueryPatch] = Field(default_factory=list)
    rows_patch: list[RowPatch] = Field(default_factory=list)
    mutations_patch: list[MutationPatch] = Field(default_factory=list)


class PokeEnd(DownstreamBody):
    tag = "pokeEnd"
    poke_id: str
    cookie: str
    cancel: bool = False


class ErrorBody(DownstreamBody):
    """An error that ends the connection; every further field is kept in `model_extra`."""

    model_config = ConfigDict(extra="allow")
    tag = "error"
    kind: str
    message: str
    origin: str | None = None


class QueryFault(DownstreamBody):
    """A named query the application refused."""

    error: str
    id: str
    name: str
    message: str | None = None
    details: Json = None


class QueryFaults(DownstreamBody):
    """Queries the application refused; on the wire the body is the array itself."""

    tag = "transformError"
    queries: list[QueryFault]


class Unused(DownstreamBody):
    """A message of the protocol that a client of this kind has no use for."""

    tag = ""


Downstream: TypeAlias = Connected | Pong | PokeStart | PokePart | PokeEnd | ErrorBody | QueryFaults | Unused

_BODIES: dict[str, type[Downstream]] = {
    body.tag: body for body in (Connected, Pong, PokeStart, PokePart, PokeEnd, ErrorBody, QueryFaults)
}
_UNUSED = ("deleteClients", "pushResponse", "pull", "inspect")


def decode(text: bytes | str) -> Downstream:
    """The message of a text frame; raises `CodecError`."""
    wire = values.loads(text)
    if not isinstance(wire, list) or len(wire) != 2:
        raise CodecError("a message is an array of a tag and a body")
    tag, content = wire
    if tag in _UNUSED:
        return Unused()
    body = _BODIES.get(tag) if isinstance(tag, str) else None
    if body is None:
        raise CodecError(f"unknown message {str(tag)[:60]!r}", fix="connect to a cache that speaks version 51")
    try:
        return body.model_validate({"queries": content} if body is QueryFaults else content)
    except ValidationError as error:
        location, message = first_mistake(error)
        raise CodecError(message, where=".".join(map(str, (tag, *location)))) from None
