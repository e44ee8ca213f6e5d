"""What clients are told of queries that cannot be run: their own mistakes in words, anything else by an id."""

from __future__ import annotations

from protocol.sync.ast_json import AstError
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.zql.engine.build import BuildError
from reference_cache.zql.query.check import UnknownName
from service_kit.logs import logger, unexpected

log = logger("cache.queries")


def query_failed(error: Exception) -> SyncError:
    """The error for the clients that want the query."""
    match error:
        case SyncError():
            return error
        case UnknownName():
            # Which tables and columns there are is not everybody's business.
            return SyncError(ErrorKind.INTERNAL, error.bare)
        case AstError() | BuildError():
            return SyncError(ErrorKind.INTERNAL, str(error))
    return SyncError(ErrorKind.INTERNAL, unexpected(log, "query failed", error))
