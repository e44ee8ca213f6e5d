"""Answers to the inspector: the desired queries of a group, what they cost, and how a query is evaluated."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from protocol.sync.ast import Query
from protocol.sync.ast_json import to_json
from protocol.sync.js_json import stringify
from protocol.sync.messages import (
    AnalyzeOptions,
    InspectAnalyzeQuery,
    Inspection,
    InspectMetrics,
    InspectQueries,
    InspectVersion,
)
from reference_cache.view_syncer.api import InspectorAnswer, NamedQueryCall
from reference_cache.zql.engine.engine import Engine
from reference_cache.zql.query.query_id import named_query_id
from reference_cache.zql.schema import Row, TableSchema

if TYPE_CHECKING:
    from reference_cache.view_syncer.client_connection import ClientConnection
    from reference_cache.view_syncer.client_group import ClientGroup
    from reference_cache.view_syncer.cvr.config import Desire, QueryConfig
    from reference_cache.view_syncer.services import Services


async def subject(question: Inspection, services: Services, connection: ClientConnection) -> Query | None:
    """The query that a question is about, as this client may ask it; None if it is about none."""
    if not isinstance(question, InspectAnalyzeQuery):
        return None
    if question.name is not None and question.args is not None:
        return await _transformed(question.name, question.args, services, connection)
    ast = question.ast if question.ast is not None else question.value
    if ast is None:
        raise ValueError("analyze-query needs an AST, or the name and the arguments of a query")
    return services.read_permissions().apply(ast, connection.auth_data)


async def _transformed(name: str, args: Sequence[Any], services: Services, connection: ClientConnection) -> Query:
    query = NamedQueryCall(named_query_id(name, args), name, args)
    transformed = (await services.transformer.transform(connection.credentials, [query])).get(query.hash)
    if not isinstance(transformed, Query):
        raise ValueError(f"the application does not know the query {name!r}: {transformed}")
    return transformed


def answer(question: Inspection, group: ClientGroup, services: Services) -> InspectorAnswer:
    """Answer a question that is about no query. Call with the pipelines' lock."""
    match question:
        case InspectVersion():
            return _own_version()
        case InspectQueries():
            return list(_queries(group, question.client_id))
        case InspectMetrics():
            return services.pipelines.metrics()
    raise ValueError(f"the inspector's {question.op!r} is answered elsewhere")


def _own_version() -> str:
    try:
        return version("zero-changesource")
    except PackageNotFoundError:
        return "0"


def _queries(group: ClientGroup, client_id: str | None) -> Iterator[dict[str, Any]]:
    now = group.ttl_clock
    for query in group.config.queries.values():
        for each, desire in sorted(query.desires.items()):
            ended = desire.inactivated_at is not None and desire.inactivated_at + desire.ttl <= now
            if not ended and client_id in (None, each):
                yield _described(group, query, each, desire)


def _described(group: ClientGroup, query: QueryConfig, client_id: str, desire: Desire) -> dict[str, Any]:
    live = group.view.running.get(query.hash)
    ast = query.ast if query.ast is not None else None if live is None else live.query
    return {
        "clientID": client_id,
        "queryID": query.hash,
        "ast": None if ast is None else to_json(ast),
        "name": query.name,
        "args": None if query.name is None else list(query.args),
        "got": query.got,
        "deleted": not desire.active,
        "ttl": desire.ttl,
        "inactivatedAt": desire.inactivated_at,
        "rowCount": 0 if live is None else len(live.rows),
        "metrics": None if live is None else live.metrics(),
    }


def analysis(query: Query, question: Inspection, engine: Engine) -> dict[str, Any]:
    """Evaluate a query once, watching every operator; returns the answer. Plain code for `Pipelines.examine`."""
    options = (isinstance(question, InspectAnalyzeQuery) and question.options) or AnalyzeOptions()
    start = time.time()
    explanation = engine.explain(query, keep_rows=bool(options.vended_rows))
    end = time.time()
    reads = explanation.reads
    tables = engine.schema.tables
    synced = {table: _distinct(tables[table], rows) for table, rows in explanation.synced.items()}
    answer = {
        "warnings": [],
        "syncedRowCount": sum(map(len, synced.values())),
        "start": start * 1000,
        "end": end * 1000,
        "elapsed": (end - start) * 1000,
        "afterPermissions": stringify(to_json(query)),
        "readRowCount": reads.total(),
        "readRowCountsByQuery": reads.counts,
        "sqlitePlans": {"operators": str(explanation).splitlines()},
    }
    if options.synced_rows is not False:
        answer["syncedRows"] = {table: _named(engine, table, rows.values()) for table, rows in synced.items()}
    if reads.rows is not None:
        answer["readRows"] = {
            table: {shape: _named(engine, table, rows) for shape, rows in by_shape.items()}
            for table, by_shape in reads.rows.items()
        }
    return answer


def _distinct(table: TableSchema, rows: Iterable[Row]) -> dict[Row, Row]:
    """The rows by primary key, each once however often it is referenced."""
    columns = table.positions(table.primary_key)
    return {tuple(row[column] for column in columns): row for row in rows}


def _named(engine: Engine, table: str, rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [engine.schema.tables[table].named(row) for row in rows]
