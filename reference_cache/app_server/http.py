"""The query and mutate endpoints as aiohttp routes.

`authenticate` makes the context of a request from its headers and cookies, or raises `Unauthenticated` (401) or
`Forbidden` (403): the client then gets new credentials and pushes its unconfirmed mutations again. `user_id` returns
the user of a context: without it a cache cannot distinguish users, and restricts a client group to the one token it
was opened with. All other failures are responses in the official form with status 200, so that caches report them to
the client instead of retrying.
"""

from __future__ import annotations

import hmac
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from aiohttp import web

from protocol import values
from protocol.errors import CodecError
from reference_cache.app_server.errors import AuthRefusal, DeclarationError, Forbidden
from reference_cache.app_server.mutators import Mutators
from reference_cache.app_server.push_processor import PushProcessor, push_failed
from reference_cache.app_server.queries import NamedQueries
from reference_cache.app_server.requests import BadRequest, parse_push, parse_schema, parse_transform
from reference_cache.app_server.stores.store import Store
from reference_cache.app_server.transform import transform_failed, transform_queries

MAX_REQUEST_BYTES = 64 * 1024 * 1024
"""More than a cache accepts from a client in one frame, because caches merge queued pushes into one request."""

Ctx = TypeVar("Ctx")
Tx = TypeVar("Tx")
Authenticate: TypeAlias = Callable[[web.Request], Ctx | Awaitable[Ctx]]


def zero_routes(
    queries: NamedQueries,
    mutators: Mutators,
    store: Store[Tx],
    *,
    authenticate: Authenticate[Ctx] | None = None,
    user_id: Callable[[Ctx], str | None] | None = None,
    api_key: str | None = None,
    query_path: str = "/query",
    mutate_path: str = "/mutate",
) -> list[web.RouteDef]:
    """Routes for `app.add_routes`: what `ZERO_QUERY_URL` and `ZERO_MUTATE_URL` of a cache should point at.

    `user_id` returns the user id of a context (None: not logged in); a cache then refuses a client that claims another
    one. It is required with `authenticate`. With `api_key`, which is the cache's `ZERO_QUERY_API_KEY` and
    `ZERO_MUTATE_API_KEY`, requests without it get a 403. Raises `DeclarationError`.
    """
    if authenticate is not None and user_id is None:
        raise DeclarationError(
            "zero_routes: `authenticate` is given without `user_id`; give the function that names the user of a context"
        )
    endpoints = _Handlers(queries, PushProcessor(mutators, store), authenticate, user_id, api_key)
    return [web.post(query_path, endpoints.query), web.post(mutate_path, endpoints.mutate)]


@dataclass(frozen=True, slots=True)
class _Handlers:
    queries: NamedQueries
    processor: PushProcessor[Any]
    authenticate: Authenticate[Any] | None
    user_id: Callable[[Any], str | None] | None
    api_key: str | None

    async def query(self, request: web.Request) -> web.Response:
        try:
            ctx = await self._context(request)
        except AuthRefusal as refusal:
            return _refused(refusal)
        try:
            queries = parse_transform(await _body(request))
        except BadRequest as error:
            return _json(transform_failed("parse", f"Failed to parse query request: {error}"))
        return self._answer(ctx, await transform_queries(self.queries, queries, ctx))

    async def mutate(self, request: web.Request) -> web.Response:
        try:
            ctx = await self._context(request)
        except AuthRefusal as refusal:
            return _refused(refusal)
        try:
            push = parse_push(await _body(request))
        except BadRequest as error:
            return _json(push_failed("parse", f"Failed to parse push body: {error}"))
        try:
            schema = parse_schema(request.query)
        except BadRequest as error:
            ids = [each.wire_id for each in push.mutations]
            return _json(push_failed("parse", f"Failed to parse push query parameters: {error}", ids))
        return self._answer(ctx, await self.processor.process(push, schema, ctx))

    async def _context(self, request: web.Request) -> Any:
        api_key = request.headers.get("X-Api-Key", "")
        if self.api_key is not None and not hmac.compare_digest(api_key.encode(), self.api_key.encode()):
            raise Forbidden("the API key of the cache is missing or wrong")
        if self.authenticate is None:
            return None
        context = self.authenticate(request)
        return await context if inspect.isawaitable(context) else context

    def _answer(self, ctx: Any, answer: dict[str, Any]) -> web.Response:
        if self.user_id is not None and answer["kind"] in ("QueryResponse", "MutateResponse"):
            answer["userID"] = self.user_id(ctx)
        return _json(answer)


async def _body(request: web.Request) -> object:
    """The JSON of a request; `MAX_REQUEST_BYTES` replaces the limit of the aiohttp application."""
    try:
        data = await _with_own_limit(request).read()
    except web.HTTPRequestEntityTooLarge:
        raise BadRequest(f"it is larger than {MAX_REQUEST_BYTES} bytes") from None
    try:
        return values.loads(data)
    except CodecError as error:
        raise BadRequest(error.message) from None


def _with_own_limit(request: web.Request) -> web.BaseRequest:
    try:
        return request.clone(client_max_size=MAX_REQUEST_BYTES)
    except RuntimeError:
        # `authenticate` or a middleware has already read the body, which aiohttp then keeps.
        return request


def _refused(refusal: AuthRefusal) -> web.Response:
    return web.json_response({"error": str(refusal) or type(refusal).__name__}, status=refusal.status)


def _json(answer: dict[str, Any]) -> web.Response:
    return web.Response(body=values.dumps(answer), content_type="application/json")
