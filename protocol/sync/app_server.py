"""What the application's two HTTP endpoints answer: named queries turned into ASTs, and results of mutations.

Both endpoints may answer in the form of 1.9.0 (an object with a `kind`) or in the older ones. `parse_*` take either,
ignore unknown fields, and raise `CodecError` for anything else.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError

from protocol.errors import CodecError
from protocol.sync.ast_field import QueryField
from protocol.validation import first_mistake

T = TypeVar("T")

CLEANUP = "_zero_cleanupResults"
"""Name of the mutation with which a cache asks the application to delete results that clients have seen."""


class Answer(BaseModel):
    """An answer or a part of one. Invariant: declared fields have their exact type; others were dropped."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class TransformedQuery(Answer):
    """A named query as an AST in server names."""

    id: str
    name: str
    ast: QueryField


class ErroredQuery(Answer):
    """A named query the application refused (`app`) or could not read (`parse`)."""

    error: Literal["app", "parse"]
    id: str
    name: str
    message: str | None = None
    details: Any = None


QueryResult: TypeAlias = Annotated[
    Annotated[TransformedQuery, Tag("ast")] | Annotated[ErroredQuery, Tag("error")],
    Discriminator(lambda item: "error" if isinstance(item, dict) and "error" in item else "ast"),
]


class QueryResponse(Answer):
    """`user_id` was absent unless it is in `model_fields_set`: null and absent differ."""

    kind: Literal["QueryResponse"] = "QueryResponse"
    user_id: str | None = Field(default=None, alias="userID")
    queries: list[QueryResult]


class TransformFailed(Answer):
    """The application could not turn any of the queries."""

    kind: Literal["TransformFailed"]
    origin: Literal["server", "zeroCache"]
    reason: str
    message: str
    query_ids: list[str] = Field(alias="queryIDs")
    details: Any = None


class MutationId(Answer):
    id: int | float
    client_id: str = Field(alias="clientID")


class MutationResult(Answer):
    """`error` is absent for a mutation that succeeded."""

    error: Literal["app", "oooMutation", "alreadyProcessed"] | None = None
    details: Any = None


class MutationResponse(Answer):
    id: MutationId
    result: MutationResult


class MutateResponse(Answer):
    """`user_id` was absent unless it is in `model_fields_set`: null and absent differ."""

    kind: Literal["MutateResponse"] = "MutateResponse"
    user_id: str | None = Field(default=None, alias="userID")
    mutations: list[MutationResponse]


class PushFailed(Answer):
    """The application could not process the request as a whole."""

    kind: Literal["PushFailed"]
    origin: Literal["server", "zeroCache"]
    reason: str
    message: str
    mutation_ids: list[MutationId] = Field(alias="mutationIDs")
    details: Any = None
    status: int | None = None


class LegacyPushError(Answer):
    """The same in the older form."""

    error: Literal["unsupportedPushVersion", "unsupportedSchemaVersion", "http", "zeroPusher"]
    mutation_ids: list[MutationId] | None = Field(default=None, alias="mutationIDs")
    details: str | None = None
    status: int | None = None


_QUERY_RESPONSE = TypeAdapter(QueryResponse)
_TRANSFORM_FAILED = TypeAdapter(TransformFailed)
_MUTATE_RESPONSE = TypeAdapter(MutateResponse)
_PUSH_FAILED = TypeAdapter(PushFailed)
_LEGACY_PUSH_ERROR = TypeAdapter(LegacyPushError)


def parse_query_answer(value: object) -> QueryResponse | TransformFailed:
    """The answer of the query endpoint."""
    match value:
        case ["transformed", queries]:
            return _read(_QUERY_RESPONSE, {"queries": queries})
        case ["transformFailed", body] | ({"kind": "TransformFailed"} as body):
            return _read(_TRANSFORM_FAILED, body)
        case {"kind": "QueryResponse"}:
            return _read(_QUERY_RESPONSE, value)
    raise CodecError("is neither a QueryResponse nor a TransformFailed", fix="answer as handleQueryRequest does")


def parse_mutate_answer(value: object) -> MutateResponse | PushFailed | LegacyPushError:
    """The answer of the mutate endpoint."""
    match value:
        case {"kind": "PushFailed"}:
            return _read(_PUSH_FAILED, value)
        case {"error": _}:
            return _read(_LEGACY_PUSH_ERROR, value)
        case {"mutations": _}:
            return _read(_MUTATE_RESPONSE, value)
    raise CodecError("is neither a MutateResponse nor a PushFailed", fix="answer as handleMutateRequest does")


def _read(adapter: TypeAdapter[T], value: object) -> T:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        location, message = first_mistake(error)
        raise CodecError(message, where=".".join(map(str, location))) from None
