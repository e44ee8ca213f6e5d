"""Queries as fields of pydantic models, for the messages that carry them.

The value is a parsed `Query`; writing the model gives back the JSON that was read. A query that cannot be understood is
a validation error of its field whose text begins with the path inside the query. Where the validation's context is
`QueryLimits`, a query that is too large is one too, before it is parsed.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import PlainSerializer, PlainValidator, ValidationInfo

from protocol.sync.ast import Query
from protocol.sync.ast_json import parse, to_json
from protocol.sync.ast_limits import QueryLimits, check_size


def _validated(value: object, info: ValidationInfo) -> Query:
    if isinstance(value, Query):
        return value
    if isinstance(info.context, QueryLimits):
        check_size(value, info.context)
    return parse(value)


QueryField: TypeAlias = Annotated[Query, PlainValidator(_validated), PlainSerializer(to_json)]
