"""Queries as fields of pydantic models, for the messages that carry them.

The value is a parsed `Query`; writing the model gives back the JSON that was read. A query that cannot be understood is
a validation error of its field whose text begins with the path inside the query.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import PlainSerializer, PlainValidator

from protocol.sync.ast import Query
from protocol.sync.ast_json import parse, to_json


def _validated(value: object) -> Query:
    return value if isinstance(value, Query) else parse(value)


QueryField: TypeAlias = Annotated[Query, PlainValidator(_validated), PlainSerializer(to_json)]
