"""Parses the requests that caches send to the two endpoints.

Unknown fields are ignored, as in the official toolkit; a missing or wrong one raises `BadRequest`, which names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from protocol.validation import first_mistake

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9_]+")


class BadRequest(Exception):
    """A request that does not follow the protocol."""


def _alias(name: str) -> str:
    return to_camel(name).replace("Id", "ID")


class RequestModel(BaseModel):
    """Base of all requests and their parts, with strict types and camelCase names."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, alias_generator=_alias)


class QueryRequest(RequestModel):
    """A named query; `args` has the one argument, or none."""

    id: str
    name: str
    args: list[Any]


class MutationRequest(RequestModel):
    """A mutation of one client; `args` has the one argument, or none."""

    type: Literal["custom"]
    id: int
    client_id: str
    name: str
    args: list[Any]

    @property
    def wire_id(self) -> dict[str, Any]:
        """The mutation id as responses contain it."""
        return {"clientID": self.client_id, "id": self.id}


class PushRequest(RequestModel):
    """Mutations of the clients of one group, in order."""

    client_group_id: str
    mutations: list[MutationRequest]
    push_version: int


class CleanUpOne(RequestModel):
    """Delete a client's results up to a mutation id."""

    type: Literal["single"] = "single"
    client_group_id: str
    client_id: str
    up_to_mutation_id: int = Field(alias="upToMutationID")


class CleanUpMany(RequestModel):
    """Delete all results of deleted clients."""

    type: Literal["bulk"]
    client_group_id: str
    client_ids: Annotated[list[str], Field(alias="clientIDs", min_length=1)]


CleanUp: TypeAlias = CleanUpMany | CleanUpOne

_TRANSFORM = TypeAdapter(tuple[Literal["transform"], list[QueryRequest]])
_PUSH = TypeAdapter(PushRequest)
_CLEAN_UP: TypeAdapter[CleanUp] = TypeAdapter(CleanUp)


def parse_transform(value: object) -> list[QueryRequest]:
    """The queries of `["transform", […]]`."""
    # In strict mode pydantic accepts no list for a tuple, and JSON has lists only.
    return _validated(_TRANSFORM, tuple(value) if isinstance(value, list) else value)[1]


def parse_push(value: object) -> PushRequest:
    """The body of a push."""
    return _validated(_PUSH, value)


def parse_clean_up(mutation: MutationRequest) -> CleanUp:
    """The argument of the internal mutation that deletes results."""
    return _validated(_CLEAN_UP, mutation.args[0] if mutation.args else None)


def parse_schema(query: Mapping[str, str]) -> str:
    """The schema of the cache's own tables (`zero_0`), from the query string."""
    for name in ("schema", "appID"):
        if not _NAME.fullmatch(query.get(name, "")):
            raise BadRequest(f"the parameter {name} is missing from the query string, or is no name")
    return query["schema"]


def _validated(adapter: TypeAdapter[T], value: object) -> T:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        location, message = first_mistake(error)
        raise BadRequest(f"{'.'.join(map(str, location))}: {message}" if location else message) from None
