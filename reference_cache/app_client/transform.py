"""Transforms named queries into ASTs through the application at `ZERO_QUERY_URL`. Zero's custom-query transformer.

ASTs are cached for five seconds per name, arguments and credentials, because a connecting client needs the same query
several times in a row; failures are not cached. A query's hash is not part of the key: the client chooses it, so it
proves nothing about the query. With no URL configured, named queries are never answered and credentials are not
checked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from protocol import values
from protocol.errors import CodecError
from protocol.sync.app_server import ErroredQuery, QueryResponse, TransformFailed, parse_query_answer
from protocol.sync.ast import Query
from protocol.sync.errors import ErrorKind, SyncError, transform_failed, unauthorized
from reference_cache.app_client.post import AppFailure, AppPost
from reference_cache.background import in_background
from reference_cache.credentials import Credentials
from reference_cache.view_syncer.api import NamedQueryCall, QueryFailure
from service_kit.logs import event, logger

log = logger("cache.queries")

CACHE_SECONDS = 5.0
CACHE_ENTRIES = 100_000
MANY_QUERIES = 200
"""From this number on, a response is checked in the background thread, so that other clients are served meanwhile."""

_Key = tuple[str, bytes, Credentials]
"""Name, arguments as JSON, and credentials."""


class _Entry(NamedTuple):
    expires: float
    query: Query


@dataclass(slots=True)
class _TransformCache:
    """Recent ASTs. Invariant: oldest first, and never more than `CACHE_ENTRIES`."""

    clock: Callable[[], float]
    # `put` adds at the end and drops expired entries at the front.
    entries: dict[_Key, _Entry] = field(default_factory=dict)

    def get(self, key: _Key) -> Query | None:
        entry = self.entries.get(key)
        return entry.query if entry is not None and entry.expires > self.clock() else None

    def put(self, key: _Key, query: Query) -> None:
        self._drop_old()
        self.entries.pop(key, None)
        self.entries[key] = _Entry(self.clock() + CACHE_SECONDS, query)

    def _drop_old(self) -> None:
        now = self.clock()
        while self.entries:
            oldest = next(iter(self.entries))
            if self.entries[oldest].expires > now and len(self.entries) < CACHE_ENTRIES:
                return
            del self.entries[oldest]


class QueryTransformer:
    """The view syncer's `Transformer`, over HTTP."""

    def __init__(self, post: AppPost | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._post = post
        self._cache = _TransformCache(clock)

    async def validate(self, credentials: Credentials) -> bool:
        """Send an empty list of queries: the application refuses bad credentials for it as for any query."""
        if self._post is None:
            return False
        response = await self._request(self._post, credentials, [])
        return "user_id" in response.model_fields_set

    async def transform(
        self, credentials: Credentials, queries: Sequence[NamedQueryCall]
    ) -> Mapping[str, Query | QueryFailure]:
        """The queries by hash, without those that the application's response omits."""
        if self._post is None:
            if queries:
                event(log, logging.WARNING, "named queries without ZERO_QUERY_URL", count=len(queries))
            return {}
        transformed: dict[str, Query | QueryFailure] = {}
        for query in queries:
            cached = self._cache.get(_key(query, credentials))
            if cached is not None:
                transformed[query.hash] = cached
        missing = [query for query in queries if query.hash not in transformed]
        if missing:
            response = await self._request(self._post, credentials, missing)
            transformed |= self._results(response, credentials, missing)
        return transformed

    async def _request(
        self, post: AppPost, credentials: Credentials, queries: Sequence[NamedQueryCall]
    ) -> QueryResponse:
        ids = [query.hash for query in queries]
        request = ["transform", [{"id": each.hash, "name": each.name, "args": list(each.args)} for each in queries]]
        try:
            received = await post(credentials.query, credentials.token, request)
            # The answer to as many queries as a group may have takes 0.2 s to check.
            parse = partial(parse_query_answer, received)
            answer = parse() if len(queries) < MANY_QUERIES else await in_background(parse)
        except AppFailure as failure:
            raise transform_failed(failure.reason, failure.message, ids, **failure.details) from None
        except CodecError as error:
            raise transform_failed("parse", f"Failed to parse response from API server: {error}", ids) from None
        if isinstance(answer, TransformFailed):
            raise _relayed(answer)
        _check_user(answer, credentials)
        return answer

    def _results(
        self, answer: QueryResponse, credentials: Credentials, queries: Sequence[NamedQueryCall]
    ) -> dict[str, Query | QueryFailure]:
        by_hash = {query.hash: query for query in queries}
        results: dict[str, Query | QueryFailure] = {}
        for result in answer.queries:
            if result.id not in by_hash:
                continue
            if isinstance(result, ErroredQuery):
                results[result.id] = QueryFailure(result.model_dump(exclude_unset=True))
            else:
                results[result.id] = result.ast
                self._cache.put(_key(by_hash[result.id], credentials), result.ast)
        return results


def _key(query: NamedQueryCall, credentials: Credentials) -> _Key:
    return query.name, values.dumps(list(query.args)), credentials


def _relayed(answer: TransformFailed) -> SyncError:
    body = answer.model_dump(by_alias=True, exclude_unset=True)
    message, origin = body.pop("message"), body.pop("origin")
    del body["kind"]
    return SyncError(ErrorKind.TRANSFORM_FAILED, message, origin=origin, **body)


def _check_user(answer: QueryResponse, credentials: Credentials) -> None:
    if "user_id" in answer.model_fields_set and answer.user_id != credentials.user_id:
        raise unauthorized("Connection userID does not match validated server userID.")
