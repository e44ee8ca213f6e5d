"""The messages a client may send on the sync socket: `[tag, body]`, one JSON text frame each.

`decode` is the border. It is as strict as the official server: an unknown tag, an unknown field or a value of the wrong
type refuses the message with `InvalidMessage`, and the connection with it. What it returns is not checked again. Bodies
keep the names and the optional fields of the wire; `traceparent` is accepted and not used.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from protocol import values
from protocol.errors import CodecError
from protocol.sync.ast_field import QueryField
from protocol.sync.ast_limits import QueryLimits
from protocol.sync.errors import ErrorKind, SyncError
from protocol.validation import Location, first_mistake

Json: TypeAlias = Any
Number: TypeAlias = int | float


def _alias(name: str) -> str:
    return to_camel(name).replace("Id", "ID").replace("Url", "URL")


class Body(BaseModel):
    """A body or a part of one. Invariant: nothing but the declared fields, each of its exact type."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=_alias, populate_by_name=True, serialize_by_alias=True
    )
    tag: ClassVar[str]


class PutQuery(Body):
    """The client wants a query: named (`name`, `args`), or ad hoc (`ast`); `ttl` in milliseconds."""

    op: Literal["put"]
    hash: str
    ttl: Number | None = None
    ast: QueryField | None = None
    name: str | None = None
    args: list[Json] | None = None


class DelQuery(Body):
    """The client no longer wants a query; it stays until its time to live is over."""

    op: Literal["del"]
    hash: str


class ClearQueries(Body):
    """The client wants none of its queries, at once."""

    op: Literal["clear"]


QueryPatch: TypeAlias = Annotated[PutQuery | DelQuery | ClearQueries, Field(discriminator="op")]


class ClientColumn(Body):
    type: Literal["string", "number", "boolean", "null", "json"]


class ClientTable(Body):
    columns: dict[str, ClientColumn]
    primary_key: list[str]


class ClientSchema(Body):
    """The tables a client was built for, by their names on the server."""

    tables: dict[str, ClientTable]


class DeleteClients(Body):
    """Clients of the group that are gone; group ids are accepted and not used."""

    tag = "deleteClients"
    client_ids: list[str] | None = Field(default=None, alias="clientIDs")
    client_group_ids: list[str] | None = Field(default=None, alias="clientGroupIDs")


class InitConnection(Body):
    """The first message of a connection, or part of its handshake: what the client wants from now on."""

    tag = "initConnection"
    desired_queries_patch: list[QueryPatch]
    client_schema: ClientSchema | None = None
    deleted: DeleteClients | None = None
    user_push_url: str | None = None
    user_push_headers: dict[str, str] | None = None
    user_query_url: str | None = None
    user_query_headers: dict[str, str] | None = None
    active_clients: list[str] | None = None
    traceparent: str | None = None


class ChangeDesiredQueries(Body):
    tag = "changeDesiredQueries"
    desired_queries_patch: list[QueryPatch]
    traceparent: str | None = None


class CrudOperation(Body):
    op: Literal["insert", "upsert", "update", "delete"]
    table_name: str
    primary_key: list[str]
    value: dict[str, Json]


class CrudArgument(Body):
    ops: list[CrudOperation]


class CrudMutation(Body):
    """A legacy mutation, which the cache would have to write by itself."""

    type: Literal["crud"]
    id: Number
    client_id: str
    name: Literal["_zero_crud"]
    args: Annotated[list[CrudArgument], Field(min_length=1, max_length=1)]
    timestamp: Number


class CustomMutation(Body):
    """A mutation for the application's own mutators."""

    type: Literal["custom"]
    id: Number
    client_id: str
    name: str
    args: list[Json]
    timestamp: Number


Mutation: TypeAlias = Annotated[CrudMutation | CustomMutation, Field(discriminator="type")]


class Push(Body):
    """Mutations of clients of one group, in order."""

    tag = "push"
    client_group_id: str
    mutations: list[Mutation]
    push_version: Number
    schema_version: Number | None = None
    timestamp: Number
    request_id: str
    auth: str | None = None
    traceparent: str | None = None


class AckMutationResponses(Body):
    """Results of this client's mutations up to `id` have been seen and may be forgotten."""

    tag = "ackMutationResponses"
    id: Number
    client_id: str


class Ping(Body):
    tag = "ping"


class UpdateAuth(Body):
    tag = "updateAuth"
    auth: str


class Pull(Body):
    """Part of the protocol, never answered."""

    tag = "pull"
    client_group_id: str
    cookie: str | None
    request_id: str


class InspectQueries(Body):
    op: Literal["queries"]
    id: str
    client_id: str | None = None


class InspectMetrics(Body):
    op: Literal["metrics"]
    id: str


class InspectVersion(Body):
    op: Literal["version"]
    id: str


class InspectAuthenticate(Body):
    op: Literal["authenticate"]
    id: str
    value: str


class AnalyzeOptions(Body):
    vended_rows: bool | None = None
    synced_rows: bool | None = None
    join_plans: bool | None = None


class InspectAnalyzeQuery(Body):
    op: Literal["analyze-query"]
    id: str
    value: QueryField | None = None
    options: AnalyzeOptions | None = None
    ast: QueryField | None = None
    name: str | None = None
    args: list[Json] | None = None


Inspection: TypeAlias = Annotated[
    InspectQueries | InspectMetrics | InspectVersion | InspectAuthenticate | InspectAnalyzeQuery,
    Field(discriminator="op"),
]


class Inspect(Body):
    """A question of the inspector; on the wire its body is the question itself."""

    tag = "inspect"
    question: Inspection


class CloseConnection(Body):
    """Deprecated and ignored; its body is an array of anything."""

    tag = "closeConnection"


Upstream: TypeAlias = (
    InitConnection
    | ChangeDesiredQueries
    | Push
    | AckMutationResponses
    | Ping
    | UpdateAuth
    | DeleteClients
    | Pull
    | Inspect
    | CloseConnection
)

_BODIES: dict[str, type[Upstream]] = {
    body.tag: body
    for body in (
        InitConnection,
        ChangeDesiredQueries,
        Push,
        AckMutationResponses,
        Ping,
        UpdateAuth,
        DeleteClients,
        Pull,
        Inspect,
        CloseConnection,
    )
}


def decode(text: bytes | str, limits: QueryLimits | None = None) -> Upstream:
    """The message of a text frame; raises `SyncError` of kind `InvalidMessage`. `limits` hold for each query in it."""
    try:
        return parse(values.loads(text), limits)
    except CodecError as error:
        raise _invalid(error.message) from None


def parse(wire: object, limits: QueryLimits | None = None) -> Upstream:
    """The message of a JSON value; raises `SyncError` of kind `InvalidMessage`."""
    if not isinstance(wire, list) or len(wire) != 2:
        raise _invalid("a message is an array of a tag and a body")
    tag, content = wire
    body = _BODIES.get(tag) if isinstance(tag, str) else None
    if body is None:
        raise _invalid(f"unknown message {str(tag)[:60]!r}; known are {', '.join(_BODIES)}")
    if body is CloseConnection and isinstance(content, list):
        return CloseConnection()
    _refuse_nulls(content, tag)
    try:
        content = {"question": content} if body is Inspect else content
        return body.model_validate(content, context=limits, by_alias=True, by_name=False)
    except ValidationError as error:
        location, message = first_mistake(error)
        raise _invalid(f"{_path(tag, location)}: {message}") from None


def _refuse_nulls(content: object, tag: str) -> None:
    """Optional fields are left out, never null; of all messages only `pull` has a field that may be."""
    if isinstance(content, dict) and tag != Pull.tag:
        for name, value in content.items():
            if value is None:
                raise _invalid(f"{tag}.{name}: is null")


def _path(tag: str, location: Location) -> str:
    return tag + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _invalid(message: str) -> SyncError:
    return SyncError(ErrorKind.INVALID_MESSAGE, message)
