"""A small world for operator tests: tables, sources of every kind, and pipelines that end in a log."""

from collections.abc import Iterable
from typing import Any

from protocol.sync.ast import Correlation, Ordering, Query
from protocol.sync.ast_json import parse
from reference_cache.zql.engine.build import Host, build
from reference_cache.zql.ivm.change import Change
from reference_cache.zql.ivm.operator import EVERYTHING, Input, Request, nodes
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.ordering import complete_query
from reference_cache.zql.schema import Row, Schema, TableSchema, hop, schema, table
from tests.support.workloads.tables import SourceKind, Tables
from tests.support.zql.recorder import Message, plain_change, plain_node

ISSUE = table("issue", {"id": "string", "owner": "string?", "rank": "number?"})
COMMENT = table("comment", {"id": "string", "issue": "string?", "text": "string?"})
USER = table("user", {"id": "string", "active": "boolean?"})
PART = table("part", {"a": "number", "b": "string", "size": "number?"}, ["a", "b"])

SCHEMA: Schema = schema(
    [ISSUE, COMMENT, USER, PART],
    {
        "issue": {"comments": hop("id", "comment", "issue"), "owner": hop("owner", "user", "id", "one")},
        "comment": {"issue": hop("issue", "issue", "id", "one")},
    },
)

BY_ID: Ordering = (("id", "asc"),)
COMMENTS_OF_ISSUE = Correlation(("id",), ("issue",))


def rows_of(table: TableSchema, rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [table.named(row) for row in rows]


class World:
    """Sources filled with rows, and what a pipeline built on them says."""

    def __init__(self, kind: SourceKind, **rows: Iterable[Row]) -> None:
        named = {name: rows_of(SCHEMA.tables[name], each) for name, each in rows.items()}
        self._tables = Tables(SCHEMA, named, kind)
        self._sources: dict[str, Source] = {}
        self.log: list[Message] = []

    def source(self, name: str) -> Source:
        if name not in self._sources:
            self._sources[name] = self._tables.open_source(SCHEMA.tables[name])
        return self._sources[name]

    def build(self, query: Query | dict[str, Any]) -> Input:
        """A query's pipeline, hydrated (operators with limits only listen to what was read), ending in the log."""
        parsed = query if isinstance(query, Query) else parse(query)
        return self.listen(build(complete_query(parsed, SCHEMA), Host(self.source)))

    def listen(self, input: Input) -> Input:
        input.set_output(self._record)
        return input

    def _record(self, change: Change) -> None:
        self.log.append(plain_change(change))

    def push(self, name: str, change: Any) -> list[Message]:
        """Push a change; what came out of the pipelines."""
        before = len(self.log)
        self.source(name).push(change)
        return self.log[before:]


def fetched(input: Input, request: Request = EVERYTHING) -> list[Message]:
    """The nodes of a fetch, subtrees included."""
    return [plain_node(node) for node in nodes(input.fetch(request))]


def keys(input: Input, request: Request = EVERYTHING) -> list[Any]:
    """The first column of every row of a fetch."""
    return [node.row[0] for node in nodes(input.fetch(request))]
