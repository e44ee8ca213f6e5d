"""What caches send to the two endpoints, checked once at the border.

Fields nobody declared are let through, as the official toolkit does; a missing or wrong one is a `BadRequest` whose
text names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

CLEAN_UP = "_zero_cleanupResults"
_NAME = re.compile(r"[A-Za-z0-9_]+")


class BadRequest(Exception):
    """A request that is not what a cache sends."""


def _alias(name: str) -> str:
    return to_camel(name).replace("Id", "ID")


class Asked(BaseModel):
    """A request or a part of one. Invariant: declared fields have their exact type."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, alias_generator=_alias)


class AskedQuery(Asked):
    """A named query; `args` has the one argument, or none."""

    id: str
    name: str
    args: list[Any]


class AskedMutation(Asked):
    """A mutation of one client; `args` has the one argument, or none."""

    type: Literal["custom"]
    id: int
    client_id: str
    name: str
    args: list[Any]

    @property
    def wire_id(self) -> dict[str, Any]:
        """Its id as answers have it."""
        return {"clientID": self.client_id, "id": self.id}


class AskedPush(Asked):
    """Mutations of clients of one group, in order."""

    client_group_id: str
    mutations: list[AskedMutation]
    push_version: int


class CleanUpOne(Asked):
    """A client has seen its results up to a mutation."""

    type: Literal["single"] = "single"
    client_group_id: str
    client_id: str
    up_to_mutation_id: int = Field(alias="upToMutationID")


class CleanUpMany(Asked):
    """Clients are gone; nobody will look at their results."""

    type: Literal["bulk"]
    client_group_id: str
    client_ids: Annotated[list[str], Field(alias="clientIDs", min_length=1)]


CleanUp: TypeAlias = CleanUpMany | CleanUpOne

_TRANSFORM = TypeAdapter(tuple[Literal["transform"], list[AskedQuery]])
_PUSH = TypeAdapter(AskedPush)
_CLEAN_UP: TypeAdapter[CleanUp] = TypeAdapter(CleanUp)


def parse_transform(value: object) -> list[AskedQuery]:
    """The queries of `["transform", […]]`."""
    try:
        # Strict tuples take no lists, which is all that JSON has.
        return _TRANSFORM.validate_python(tuple(value) if isinstance(value, list) else value)[1]
    except ValidationError as error:
        raise BadRequest(_first(error)) from None


def parse_push(value: object) -> AskedPush:
    """The body of a push."""
    try:
        return _PUSH.validate_python(value)
    except ValidationError as error:
        raise BadRequest(_first(error)) from None


def parse_clean_up(mutation: AskedMutation) -> CleanUp:
    """The argument of the internal mutation that deletes results."""
    try:
        return _CLEAN_UP.validate_python(mutation.args[0] if mutation.args else None)
    except ValidationError as error:
        raise BadRequest(_first(error)) from None


def parse_schema(query: Mapping[str, str]) -> str:
    """The schema of the consumer's tables, from the query string."""
    for name in ("schema", "appID"):
        if not _NAME.fullmatch(query.get(name, "")):
            raise BadRequest(f"the parameter {name} is missing from the query string, or is no name")
    return query["schema"]


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, found["loc"]))
    return f"{place}: {found['msg']}" if place else str(found["msg"])
