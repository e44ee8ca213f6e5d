"""Which queries are the same: they have the same canonical form, and their clients identify rows by the same keys.

Groups that ask for the same query share its pipeline, its rows and its records.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import orjson

from protocol.sync.ast import Query
from protocol.sync.ast_json import to_json
from protocol.sync.js_json import stringify
from protocol.sync.messages import ClientSchema
from reference_cache.zql.query.canonical import canonical
from reference_cache.zql.schema import Schema

KeyChoice: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Tables whose rows are identified by another key than the first, and by which; sorted."""


def key_choice(client: ClientSchema, schema: Schema) -> KeyChoice:
    """How a client identifies rows; the client's schema has been checked."""
    return tuple(
        (name, tuple(table.primary_key))
        for name, table in sorted(client.tables.items())
        if name in schema.tables and tuple(table.primary_key) != schema.tables[name].primary_key
    )


def keyed_schema(schema: Schema, choice: KeyChoice) -> Schema:
    """The schema with these keys as the primary ones."""
    tables = dict(schema.tables)
    for name, key in choice:
        table = tables[name]
        others = tuple(each for each in table.keys if set(each) != set(key))
        tables[name] = replace(table, primary_key=key, unique_keys=others)
    return Schema(tables)


class DistinctQuery(NamedTuple):
    """A query's identity: the form that is evaluated, and the key it has in the CVR file."""

    canonical: Query
    key: str


def distinct_query(query: Query, choice: KeyChoice, schema: Schema) -> DistinctQuery:
    """The identity of a query; raises `AstError` if it does not fit the schema. Pure, so it may run in any thread.

    The key cannot be forged: groups whose queries have the same key get the same rows.
    """
    form = canonical(query, schema)
    text = stringify(to_json(form)).encode("utf-8", "surrogatepass")
    return DistinctQuery(form, hashlib.sha256(text + (orjson.dumps(choice) if choice else b"")).hexdigest())
