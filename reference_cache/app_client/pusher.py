"""Custom mutations to the application: `ZERO_MUTATE_URL`.

One request per client group at a time, so that mutations reach the application in order. What arrives meanwhile waits,
encoded as it will be sent, and is merged by connection into the next requests. What waits is counted in bytes, per
group and in total; a push for which there is no room is refused with `ServerOverloaded`: its client sends it later.
Results are not taken from the answers: they come back through the change source, with the rows they wrote. Only a
request that fails as a whole is told, to the clients whose mutations were in it.
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
from reference_cache.app_client.credentials import Credentials
from reference_cache.app_client.post import AppFailure, AppPost
from reference_cache.byte_budget import ByteBudget
from reference_cache.view_syncer.api import Downstream
from service_kit.logs import event, logger, unexpected

log = logger("cache.mutations")

REQUEST_BYTES = 4 * 1024 * 1024
"""Pushes are merged into one request up to this size; a larger push is a request of its own."""

PUSH_OVERHEAD_BYTES = 512
"""What a waiting push costs besides its text."""

_LEGACY_MESSAGES = {
    "unsupportedPushVersion": "Unsupported push version",
    "unsupportedSchemaVersion": "Unsupported schema version",
}


MutationIds = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A push that waits. `head` is its body without the mutations, `mutations` are their texts with commas between."""

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
    """Pushes of one socket with the same credentials, for one request."""

    credentials: Credentials
    pushes: list[_Waiting]
    size: int = 0

    @property
    def ids(self) -> MutationIds:
        return [each for push in self.pushes for each in push.ids]

    def body(self) -> bytes:
        """The JSON text of the request."""
        mutations = b",".join(push.mutations for push in self.pushes)
        return b'%b,"mutations":[%b]}' % (self.pushes[0].head[:-1], mutations)


@dataclass(slots=True)
class _Group:
    """The clients of one group that can be told of failures, and the pushes that wait."""

    clients: dict[str, Downstream] = field(default_factory=dict)
    waiting: list[_Waiting] = field(default_factory=list)
    worker: asyncio.Task[None] | None = None


class Pusher:
    """Forwards pushes of all groups. Invariant: at most one request of a group is under way."""

    def __init__(self, post: AppPost, budget: ByteBudget) -> None:
        self.cleanups = Cleanups(post)
        self._post = post
        self._budget = budget
        self._groups: dict[str, _Group] = {}
        self._stopped = False

    def register(self, group_id: str, client_id: str, downstream: Downstream) -> None:
        """From now on, tell this client of its failures here."""
        self._groups.setdefault(group_id, _Group()).clients[client_id] = downstream

    def unregister(self, group_id: str, client_id: str, downstream: Downstream) -> None:
        """The client's socket is gone; what it pushed is still forwarded."""
        group = self._groups.get(group_id)
        if group is not None and group.clients.get(client_id) is downstream:
            del group.clients[client_id]
            self._forget_if_idle(group_id, group)

    def push(self, group_id: str, sender: str, credentials: Credentials, push: Push) -> None:
        """Queue a push; raises `SyncError` if too much is waiting already. `sender` names the socket."""
        if self._stopped:
            return
        waiting = _encoded(sender, credentials, push)
        self._budget.take(group_id, waiting.size)
        group = self._groups.setdefault(group_id, _Group())
        group.waiting.append(waiting)
        if group.worker is None:
            group.worker = asyncio.create_task(self._work(group_id, group))

    async def stop(self) -> None:
        """Give up what is under way; clients send unconfirmed mutations again when they are back."""
        self._stopped = True
        tasks = [group.worker for group in self._groups.values() if group.worker is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(self.cleanups.stop(), *tasks, return_exceptions=True)

    async def _work(self, group_id: str, group: _Group) -> None:
        while group.waiting:
            waiting, group.waiting = group.waiting, []
            for request in merged(waiting):
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
            _tell(group, each)


def _encoded(sender: str, credentials: Credentials, push: Push) -> _Waiting:
    wire = push.model_dump(exclude_none=True)
    mutations = wire.pop("mutations")
    ids = [{"id": each["id"], "clientID": each["clientID"]} for each in mutations]
    return _Waiting(sender, credentials, values.dumps(wire), values.dumps(mutations)[1:-1], ids)


def merged(waiting: Sequence[_Waiting]) -> list[_Request]:
    """Requests: consecutive pushes of one socket with the same credentials in one, in the order they came."""
    requests: list[_Request] = []
    newest: dict[str, _Request] = {}  # by socket
    for push in waiting:
        request = newest.get(push.sender)
        if request is None or request.credentials != push.credentials or request.size + push.size > REQUEST_BYTES:
            request = newest[push.sender] = _Request(push.credentials, [])
            requests.append(request)
        request.pushes.append(push)
        request.size += push.size
    return requests


def _failures(answer: MutateResponse | PushFailed | LegacyPushError, credentials: Credentials) -> list[SyncError]:
    """What must be told of an answer: a failure as a whole, or a mutation that came out of order."""
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


def _tell(group: _Group, failure: SyncError) -> None:
    """Each client whose mutations failed hears of its own."""
    by_client: dict[str, list[Mapping[str, Any]]] = {}
    for each in failure.details["mutationIDs"]:
        by_client.setdefault(each["clientID"], []).append(each)
    for client_id, ids in by_client.items():
        downstream = group.clients.get(client_id)
        if downstream is not None:
            own = {**failure.details, "mutationIDs": ids}
            downstream.fail(SyncError(failure.kind, failure.message, origin=failure.origin, **own))
