"""Transforms the named queries of one request into ASTs. Pure, except for the handlers.

An unknown query, wrong arguments or a refusal become an error of that query only; the other queries are results. A
request fails as a whole if it cannot be parsed, or if a handler does not return a query.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from protocol import values
from protocol.errors import CodecError
from protocol.sync.ast_json import to_json
from reference_cache.app_server.errors import ApplicationError, DeclarationError, InvalidArguments
from reference_cache.app_server.queries import NamedQueries
from reference_cache.app_server.requests import QueryRequest
from service_kit.logs import logger, unexpected

log = logger("cache.app_server")


async def transform_queries(queries: NamedQueries, requested: Sequence[QueryRequest], ctx: object) -> dict[str, Any]:
    """The response to a request for these queries, without `userID`."""
    try:
        results = await asyncio.gather(*(_transform(queries, each, ctx) for each in requested))
    except DeclarationError as error:
        message = unexpected(log, "query request failed", error)
        return transform_failed("internal", message, [each.id for each in requested])
    return {"kind": "QueryResponse", "queries": results}


def transform_failed(reason: str, message: str, ids: Sequence[str] = ()) -> dict[str, Any]:
    """The response for a request that failed as a whole."""
    return {
        "kind": "TransformFailed",
        "origin": "server",
        "reason": reason,
        "message": message,
        "queryIDs": list(ids),
    }


async def _transform(queries: NamedQueries, request: QueryRequest, ctx: object) -> dict[str, Any]:
    query_ref = {"id": request.id, "name": request.name}
    try:
        query = await queries.resolve(request.name, request.args[0] if request.args else None, ctx)
    except DeclarationError:
        raise
    except ApplicationError as error:
        kind = "parse" if isinstance(error, InvalidArguments) else "app"
        return {"error": kind, **query_ref, **client_error(error)}
    except Exception as error:
        return {"error": "app", **query_ref, **client_error(error, query=request.name)}
    return {**query_ref, "ast": to_json(query)}


def client_error(error: Exception, **fields: object) -> dict[str, Any]:
    """The fields of an error that the client gets: message and details of an `ApplicationError`.

    Any other exception is a bug: it goes to the log with `fields`, and the client gets an id that the log line has.
    """
    if isinstance(error, ApplicationError):
        return {"message": error.message, **({} if error.details is None else {"details": _sendable(error.details)})}
    return {"message": unexpected(log, "handler failed", error, **fields)}


def _sendable(details: Any) -> Any:
    """The details, or their repr if JSON cannot express them: the refusal itself must reach the client."""
    try:
        values.dumps(details)
    except CodecError:
        return repr(details)
    return details
