"""Forwards custom mutations to the application at `ZERO_MUTATE_URL`. Zero's pusher.

There is one request per client group at a time, so that mutations reach the application in order. Pushes that arrive
meanwhile are queued in encoded form and merged by connection into the next requests. Queued bytes are limited per group
and in total; a push over the limit is refused with `ServerOverloaded`, and its client sends it again later. The results
of mutations are not read from the response: they arrive through the change source, with the rows the mutations wrote.
Only a request that fails as a whole is reported, to the clients whose mutations it contained.

Everything here runs on the cache's event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from protocol import values
from protocol.errors import CodecError
from protocol.sync.app_server import LegacyPushError, MutateResponse, MutationId, PushFailed, parse_mutate_answer
from protocol.sync.errors import SyncError, push_failed
from protocol.sync.messages import Push
from reference_cache.app_client.cleanups import Cleanups
from reference_cache.app_client.post import AppFailure, AppPost
from reference_cache.byte_budget import ByteBudget
from reference_cache.credentials import Credentials
from reference_cache.view_syncer.api import Downstream
from service_kit.logs import event, logger, unexpected

log = logger("cache.mutations")

REQUEST_BYTES = 4 * 1024 * 1024
"""Pushes are merged into one request up to this size; a larger push is a request of its own."""

PUSH_OVERHEAD_BYTES = 512
"""Estimated memory of a queued push in addition to its text."""

_LEGACY_MESSAGES = {
    "unsupportedPushVersion": "Unsupported push version",
    "unsupportedSchemaVersion": "Unsupported schema version",
}


MutationIds = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _QueuedPush:
    """An encoded push: `head` is its body without the mutations, `mutations` their JSON texts joined by commas."""

    sender: str
    credentials: Credentials
    head: bytes
    mutations: bytes
    ids: MutationIds

    @property
    def size(self) -> int:
        return len(self.head) + len(self.mutations) + PUSH_OVERHEAD_BYTES


@dataclass(slots=True)
class _Request:
    """Consecutive pushes of one socket with the same credentials; becomes one HTTP request."""

    credentials: Credentials
    # Both are written by `merged` only.
    pushes: list[_QueuedPush]
    size: int = 0

    @property
    def ids(self) -> MutationIds:
        return [each for push in self.pushes for each in push.ids]

    def body(self) -> bytes:
        """The JSON text of the request: the first push with the mutations of all."""
        mutations = b",".join(push.mutations for push in self.pushes)
        return b'%b,"mutations":[%b]}' % (self.pushes[0].head[:-1], mutations)


@dataclass(slots=True)
class _Group:
    """The connected clients and the queued pushes of one client group."""

    # By client id; written by `register` and `unregister`.
    clients: dict[str, Downstream] = field(default_factory=dict)
    # In order of arrival; `push` appends, the worker takes all.
    queue: list[_QueuedPush] = field(default_factory=list)
    # The task that sends this group's requests; None while the queue is empty and no request is running.
    worker: asyncio.Task[None] | None = None


class Pusher:
    """Forwards the pushes of all groups. Invariant: at most one request per group is running."""

    def __init__(self, post: AppPost, budget: ByteBudget) -> None:
        self.cleanups = Cleanups(post)
        self._post = post
        self._budget = budget
        # By client group id; a group is removed when it has neither connected clients nor a worker.
        self._groups: dict[str, _Group] = {}
        # Set by `stop`; later pushes are ignored.
        self._stopped = False

    def register(self, group_id: str, client_id: str, downstream: Downstream) -> None:
        """Report failures of this client's pushes to `downstream` from now on."""
        self._groups.setdefault(group_id, _Group()).clients[client_id] = downstream

    def unregister(self, group_id: str, client_id: str, downstream: Downstream) -> None:
        """Stop reporting to a closed socket; its queued pushes are still forwarded."""
        group = self._groups.get(group_id)
        if group is not None and group.clients.get(client_id) is downstream:
            del group.clients[client_id]
            self._forget_if_idle(group_id, group)

    def push(self, group_id: str, sender: str, credentials: Credentials, push: Push) -> None:
        """Queue a push; raises `SyncError` if too many bytes are queued. `sender` identifies the socket."""
        if self._stopped:
            return
        queued = _encoded(sender, credentials, push)
        self._budget.take(group_id, queued.size)
        group = self._groups.setdefault(group_id, _Group())
        group.queue.append(queued)
        if group.worker is None:
            group.worker = asyncio.create_task(self._work(group_id, group))

    async def stop(self) -> None:
        """Cancel running requests; clients push unconfirmed mutations again after reconnecting."""
        self._stopped = True
        tasks = [group.worker for group in self._groups.values() if group.worker is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(self.cleanups.stop(), *tasks, return_exceptions=True)

    async def _work(self, group_id: str, group: _Group) -> None:
        while group.queue:
            queue, group.queue = group.queue, []
            for request in merged(queue):
                await self._forward(group_id, group, request)
                self._budget.release(group_id, request.size)
        group.worker = None
        self._forget_if_idle(group_id, group)

    def _forget_if_idle(self, group_id: str, group: _Group) -> None:
        if not group.clients and group.worker is None and self._groups.get(group_id) is group:
            del self._groups[group_id]

    async def _forward(self, group_id: str, group: _Group, request: _Request) -> None:
        credentials, ids = request.credentials, request.ids
        try:
            answer = parse_mutate_answer(await self._post(credentials.mutate, credentials.token, request.body()))
            failures = _failures(answer, credentials)
        except AppFailure as failure:
            failures = [push_failed(failure.reason, failure.message, ids, **failure.details)]
        except CodecError as error:
            failures = [push_failed("parse", f"Failed to parse response from API server: {error}", ids)]
        except Exception as error:
            failures = [push_failed("internal", unexpected(log, "push failed", error), ids)]
        for each in failures:
            event(log, logging.WARNING, "push failed", group=group_id, why=each.message)
            _report(group, each)


def _encoded(sender: str, credentials: Credentials, push: Push) -> _QueuedPush:
    wire = push.model_dump(exclude_none=True)
    mutations = wire.pop("mutations")
    ids = [{"id": each["id"], "clientID": each["clientID"]} for each in mutations]
    return _QueuedPush(sender, credentials, values.dumps(wire), values.dumps(mutations)[1:-1], ids)


def merged(queue: Sequence[_QueuedPush]) -> list[_Request]:
    """Merge consecutive pushes of one socket with the same credentials into one request, up to `REQUEST_BYTES`."""
    requests: list[_Request] = []
    newest: dict[str, _Request] = {}  # by socket
    for push in queue:
        request = newest.get(push.sender)
        if request is None or request.credentials != push.credentials or request.size + push.size > REQUEST_BYTES:
            request = newest[push.sender] = _Request(push.credentials, [])
            requests.append(request)
        request.pushes.append(push)
        request.size += push.size
    return requests


def _failures(answer: MutateResponse | PushFailed | LegacyPushError, credentials: Credentials) -> list[SyncError]:
    """The errors to report: the request failed as a whole, is of another user, or a mutation was out of order."""
    if isinstance(answer, PushFailed):
        body = answer.model_dump(by_alias=True, exclude_unset=True)
        fixed = ("kind", "origin", "reason", "message", "mutationIDs")
        rest = {name: value for name, value in body.items() if name not in fixed}
        ids = body["mutationIDs"]
        return [push_failed(answer.reason, answer.message, ids, origin=answer.origin, **rest)]
    if isinstance(answer, LegacyPushError):
        return [_modern(answer)]
    ids = [each.id for each in answer.mutations]
    if "user_id" in answer.model_fields_set and answer.user_id != credentials.user_id:
        message = "Connection userID does not match validated server userID."
        return [push_failed("http", message, _wire(ids), status=401)]
    out_of_order = [each for each in answer.mutations if each.result.error == "oooMutation"]
    return [_out_of_order(each.id, each.result.details, ids) for each in out_of_order[:1]]


def _out_of_order(first: MutationId, details: object, ids: Sequence[MutationId]) -> SyncError:
    same_client = _wire([each for each in ids if each.client_id == first.client_id])
    more = {} if details is None else {"details": details}
    return push_failed("oooMutation", "mutation was out of order", same_client, origin="server", **more)


def _modern(answer: LegacyPushError) -> SyncError:
    ids = _wire(answer.mutation_ids or [])
    if answer.error == "http":
        message = f"Fetch from API server returned non-OK status {answer.status}"
        return push_failed("http", message, ids, status=answer.status, bodyPreview=answer.details or "")
    reason = "unsupportedPushVersion" if answer.error == "unsupportedPushVersion" else "internal"
    message = _LEGACY_MESSAGES.get(answer.error) or answer.details or "An unknown error occurred while pushing"
    return push_failed(reason, message, ids, origin="server")


def _wire(ids: Sequence[MutationId]) -> list[dict[str, Any]]:
    return [each.model_dump(by_alias=True) for each in ids]


def _report(group: _Group, failure: SyncError) -> None:
    """Send each connected client the error with its own mutation ids."""
    by_client: dict[str, list[Mapping[str, Any]]] = {}
    for each in failure.details["mutationIDs"]:
        by_client.setdefault(each["clientID"], []).append(each)
    for client_id, ids in by_client.items():
        downstream = group.clients.get(client_id)
        if downstream is not None:
            own = {**failure.details, "mutationIDs": ids}
            downstream.fail(SyncError(failure.kind, failure.message, origin=failure.origin, **own))
