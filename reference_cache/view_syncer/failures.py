"""The errors that clients get for queries that cannot run: their own mistakes in words, others as an id in the log."""

from __future__ import annotations

from protocol.sync.ast_json import AstError
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.zql.engine.build import BuildError
from reference_cache.zql.query.check import UnknownName
from service_kit.logs import logger, unexpected

log = logger("cache.queries")


def query_failed(error: Exception) -> SyncError:
    """The error for the clients that desire the query."""
    match error:
        case SyncError():
            return error
        case UnknownName():
            # Without the suggestions: clients must not learn which tables and columns there are.
            return SyncError(ErrorKind.INTERNAL, error.bare)
        case AstError() | BuildError():
            return SyncError(ErrorKind.INTERNAL, str(error))
    return SyncError(ErrorKind.INTERNAL, unexpected(log, "query failed", error))
