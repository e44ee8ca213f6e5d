"""Named queries through the application: `ZERO_QUERY_URL`.

The application knows what a name and its arguments mean, and for whom. Answers are kept for five seconds per name,
arguments and credentials, since a client that connects asks several times in a row; failures are not kept. The hash of
a query is chosen by its client and says nothing of what it means, so it is no part of that key. With no URL configured,
named queries are never answered, and nobody's credentials are checked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from protocol import values
from protocol.errors import CodecError
from protocol.sync.app_server import ErroredQuery, QueryResponse, TransformFailed, parse_query_answer
from protocol.sync.ast import Query
from protocol.sync.errors import ErrorKind, SyncError, transform_failed, unauthorized
from reference_cache.app_client.credentials import Credentials
from reference_cache.app_client.post import AppFailure, AppPost
from reference_cache.background import in_background
from reference_cache.view_syncer.api import NamedQuery, QueryFailure
from service_kit.logs import event, logger

log = logger("cache.queries")

KEEP_SECONDS = 5.0
KEEP_ANSWERS = 100_000
MANY_QUERIES = 200
"""From so many on, an answer is checked in the background, so that other clients are served meanwhile."""

_Key = tuple[str, bytes, Credentials]
"""Name, arguments as JSON, and for whom."""


@dataclass(slots=True)
class _Kept:
    """Answers that are young enough. Invariant: in the order they came, and never more than `KEEP_ANSWERS`."""

    clock: Callable[[], float]
    answers: dict[_Key, tuple[float, Query]] = field(default_factory=dict)

    def get(self, key: _Key) -> Query | None:
        found = self.answers.get(key)
        return found[1] if found is not None and found[0] > self.clock() else None

    def put(self, key: _Key, query: Query) -> None:
        self._drop_old()
        self.answers.pop(key, None)
        self.answers[key] = (self.clock() + KEEP_SECONDS, query)

    def _drop_old(self) -> None:
        now = self.clock()
        while self.answers:
            oldest = next(iter(self.answers))
            if self.answers[oldest][0] > now and len(self.answers) < KEEP_ANSWERS:
                return
            del self.answers[oldest]


class QueryTransformer:
    """The `Transformer` of the view syncer, over HTTP."""

    def __init__(self, post: AppPost | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._post = post
        self._kept = _Kept(clock)

    async def validate(self, credentials: Credentials) -> bool:
        """Ask with an empty list: the application refuses what it would refuse for any query."""
        if self._post is None:
            return False
        answer = await self._ask(self._post, credentials, [])
        return "user_id" in answer.model_fields_set

    async def transform(
        self, credentials: Credentials, queries: Sequence[NamedQuery]
    ) -> Mapping[str, Query | QueryFailure]:
        """The queries by hash; those the application left out are left out."""
        if self._post is None:
            if queries:
                event(log, logging.WARNING, "named queries without ZERO_QUERY_URL", count=len(queries))
            return {}
        found: dict[str, Query | QueryFailure] = {}
        for query in queries:
            kept = self._kept.get(_key(query, credentials))
            if kept is not None:
                found[query.hash] = kept
        wanted = [query for query in queries if query.hash not in found]
        if wanted:
            found |= self._results(await self._ask(self._post, credentials, wanted), credentials, wanted)
        return found

    async def _ask(self, post: AppPost, credentials: Credentials, queries: Sequence[NamedQuery]) -> QueryResponse:
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
        self, answer: QueryResponse, credentials: Credentials, queries: Sequence[NamedQuery]
    ) -> dict[str, Query | QueryFailure]:
        asked = {query.hash: query for query in queries}
        found: dict[str, Query | QueryFailure] = {}
        for result in answer.queries:
            if result.id not in asked:
                continue
            if isinstance(result, ErroredQuery):
                found[result.id] = QueryFailure(result.model_dump(exclude_unset=True))
            else:
                found[result.id] = result.ast
                self._kept.put(_key(asked[result.id], credentials), result.ast)
        return found


def _key(query: NamedQuery, credentials: Credentials) -> _Key:
    return query.name, values.dumps(list(query.args)), credentials


def _relayed(answer: TransformFailed) -> SyncError:
    body = answer.model_dump(by_alias=True, exclude_unset=True)
    message, origin = body.pop("message"), body.pop("origin")
    del body["kind"]
    return SyncError(ErrorKind.TRANSFORM_FAILED, message, origin=origin, **body)


def _check_user(answer: QueryResponse, credentials: Credentials) -> None:
    if "user_id" in answer.model_fields_set and answer.user_id != credentials.user_id:
        raise unauthorized("Connection userID does not match validated server userID.")
