"""Named queries of one request into ASTs. Pure but for the handlers.

Every query stands for itself: an unknown one, one with wrong arguments or one that is refused becomes an error of that
query, and the others are answered. Only a request that cannot be read, or a handler that is wrong in itself, fails as a
whole.
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
from reference_cache.app_server.requests import AskedQuery
from service_kit.logs import logger, unexpected

log = logger("cache.app_server")


async def transform_queries(queries: NamedQueries, asked: Sequence[AskedQuery], ctx: object) -> dict[str, Any]:
    """The answer to a request for these queries, without the user's id."""
    try:
        answered = await asyncio.gather(*(_answered(queries, each, ctx) for each in asked))
    except DeclarationError as error:
        message = unexpected(log, "query request failed", error)
        return transform_failed("internal", message, [each.id for each in asked])
    return {"kind": "QueryResponse", "queries": answered}


def transform_failed(reason: str, message: str, ids: Sequence[str] = ()) -> dict[str, Any]:
    """The answer that none of the queries could be made."""
    return {
        "kind": "TransformFailed",
        "origin": "server",
        "reason": reason,
        "message": message,
        "queryIDs": list(ids),
    }


async def _answered(queries: NamedQueries, asked: AskedQuery, ctx: object) -> dict[str, Any]:
    known = {"id": asked.id, "name": asked.name}
    try:
        query = await queries.resolve(asked.name, asked.args[0] if asked.args else None, ctx)
    except DeclarationError:
        raise
    except ApplicationError as error:
        kind = "parse" if isinstance(error, InvalidArguments) else "app"
        return {"error": kind, **known, **told(error)}
    except Exception as error:
        return {"error": "app", **known, **told(error, query=asked.name)}
    return {**known, "ast": to_json(query)}


def told(error: Exception, **fields: object) -> dict[str, Any]:
    """What a client hears of an error: the message and the details of an `ApplicationError`. Any other is a fault
    whose text is for the log (with these fields); the client is told an id."""
    if isinstance(error, ApplicationError):
        return {"message": error.message, **({} if error.details is None else {"details": _sendable(error.details)})}
    return {"message": unexpected(log, "handler failed", error, **fields)}


def _sendable(details: Any) -> Any:
    """Details as JSON can say them: what it cannot must not keep the refusal itself from being told."""
    try:
        values.dumps(details)
    except CodecError:
        return repr(details)
    return details
