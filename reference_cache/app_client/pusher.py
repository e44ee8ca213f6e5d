"""Custom mutations to the application: `ZERO_MUTATE_URL`.

One request per client group at a time, so that mutations reach the application in order. What arrives meanwhile waits
and is merged by connection into the next requests; a group whose application is slow holds back only its own sockets.
Results are not taken from the answers: they come back through the change source, with the rows they wrote. Only a
request that fails as a whole is told, to the clients whose mutations were in it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from protocol.errors import CodecError
from protocol.sync.app_server import LegacyPushError, MutateResponse, MutationId, PushFailed, parse_mutate_answer
from protocol.sync.errors import SyncError, push_failed
from protocol.sync.messages import Push
from reference_cache.app_client.credentials import Credentials
from reference_cache.app_client.post import AppFailure, AppPost
from reference_cache.observe import event, logger, unexpected
from reference_cache.view_syncer.api import Downstream

log = logger("mutations")

WAITING_PUSHES = 1000
"""How many pushes of a group may wait; then its sockets are not read until there is room."""

CLEANUP = "_zero_cleanupResults"
_LEGACY_MESSAGES = {
    "unsupportedPushVersion": "Unsupported push version",
    "unsupportedSchemaVersion": "Unsupported schema version",
}


@dataclass(frozen=True, slots=True)
class _Waiting:
    sender: str
    credentials: Credentials
    push: Push


@dataclass(slots=True)
class _Group:
    """The clients of one group that can be told of failures, and the pushes that wait."""

    clients: dict[str, Downstream] = field(default_factory=dict)
    queue: asyncio.Queue[_Waiting] = field(default_factory=lambda: asyncio.Queue(WAITING_PUSHES))
    worker: asyncio.Task[None] | None = None


class Pusher:
    """Forwards pushes of all groups. Invariant: at most one request of a group is under way."""

    def __init__(self, post: AppPost) -> None:
        self._post = post
        self._groups: dict[str, _Group] = {}
        self._cleanups: set[asyncio.Task[None]] = set()
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

    async def push(self, group_id: str, sender: str, credentials: Credentials, push: Push) -> None:
        """Queue a push; waits only while the group has too many waiting. `sender` names the socket."""
        if self._stopped:
            return
        group = self._groups.setdefault(group_id, _Group())
        await group.queue.put(_Waiting(sender, credentials, push))
        if group.worker is None and not self._stopped:
            group.worker = asyncio.create_task(self._work(group_id, group))

    def results_seen(self, group_id: str, credentials: Credentials, client_id: str, up_to: float) -> None:
        """Have the application forget results a client has seen; failing that costs only space, so nobody waits."""
        argument = {"type": "single", "clientGroupID": group_id, "clientID": client_id, "upToMutationID": up_to}
        self._clean_up(credentials, group_id, client_id, argument, f"cleanup-{group_id}-{client_id}-{up_to}")

    def clients_deleted(self, group_id: str, credentials: Credentials, client_ids: Sequence[str]) -> None:
        """Have the application forget the results of clients that are gone."""
        if client_ids:
            argument = {"type": "bulk", "clientGroupID": group_id, "clientIDs": list(client_ids)}
            self._clean_up(credentials, group_id, client_ids[0], argument, f"cleanup-bulk-{group_id}-{_now()}")

    async def stop(self) -> None:
        """Give up what is under way; clients send unconfirmed mutations again when they are back."""
        self._stopped = True
        tasks = [group.worker for group in self._groups.values() if group.worker is not None] + list(self._cleanups)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for group in list(self._groups.values()):
            while not group.queue.empty():
                group.queue.get_nowait()
                await asyncio.sleep(0)  # whoever waits for room has it now

    async def _work(self, group_id: str, group: _Group) -> None:
        while not group.queue.empty():
            waiting = [group.queue.get_nowait() for _ in range(group.queue.qsize())]
            for credentials, body in merged(waiting):
                await self._forward(group, credentials, body)
        group.worker = None
        self._forget_if_idle(group_id, group)

    def _forget_if_idle(self, group_id: str, group: _Group) -> None:
        if not group.clients and group.worker is None and self._groups.get(group_id) is group:
            del self._groups[group_id]

    async def _forward(self, group: _Group, credentials: Credentials, body: Mapping[str, Any]) -> None:
        ids = [{"id": each["id"], "clientID": each["clientID"]} for each in body["mutations"]]
        try:
            answer = parse_mutate_answer(await self._post(credentials.mutate, credentials.token, body))
            failures = _failures(answer, credentials)
        except AppFailure as failure:
            failures = [push_failed(failure.reason, failure.message, ids, **failure.details)]
        except CodecError as error:
            failures = [push_failed("parse", f"Failed to parse response from API server: {error}", ids)]
        except Exception as error:
            failures = [push_failed("internal", unexpected(log, "push failed", error), ids)]
        for each in failures:
            event(log, logging.WARNING, "push failed", group=body["clientGroupID"], why=each.message)
            _tell(group, each)

    def _clean_up(
        self, credentials: Credentials, group_id: str, client_id: str, argument: Mapping[str, Any], request: str
    ) -> None:
        now = _now()
        mutation = {"type": "custom", "id": 0, "clientID": client_id, "name": CLEANUP, "args": [argument]}
        body = {
            "clientGroupID": group_id,
            "mutations": [{**mutation, "timestamp": now}],
            "pushVersion": 1,
            "timestamp": now,
            "requestID": request,
        }
        task = asyncio.create_task(self._send_cleanup(credentials, body))
        self._cleanups.add(task)
        task.add_done_callback(self._cleanups.discard)

    async def _send_cleanup(self, credentials: Credentials, body: Mapping[str, Any]) -> None:
        try:
            await self._post(credentials.mutate, credentials.token, body)
        except AppFailure as failure:
            event(log, logging.WARNING, "results were not cleaned up", why=failure.message)


def merged(waiting: Sequence[_Waiting]) -> list[tuple[Credentials, dict[str, Any]]]:
    """Request bodies: the pushes of one socket with the same credentials in one, in the order they came."""
    bodies: dict[tuple[str, Credentials], dict[str, Any]] = {}
    for each in waiting:
        wire = each.push.model_dump(exclude_none=True)
        body = bodies.setdefault((each.sender, each.credentials), {**wire, "mutations": []})
        body["mutations"] += wire["mutations"]
    return [(credentials, body) for (_, credentials), body in bodies.items()]


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


def _now() -> int:
    return int(time.time() * 1000)
