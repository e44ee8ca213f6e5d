"""Asks the application to delete mutation results that clients have acknowledged, or whose clients were deleted.

A failed request only costs the application some space. So these requests do not compete with mutations for connections:
only a few run at a time, one per client group, and what accumulates meanwhile is merged. Above a limit, requests are
dropped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from protocol.sync.app_server import CLEANUP
from reference_cache.app_client.post import AppFailure, AppPost
from reference_cache.credentials import Credentials
from service_kit.logs import event, logger

log = logger("cache.mutations")

MAX_REQUESTS = 8
"""How many requests may run at a time."""

MAX_GROUPS = 10_000
MAX_CLIENTS = 1_000
"""How many groups may be pending, and clients of one group; more are dropped."""


@dataclass(slots=True)
class _Pending:
    """The results of one group that are to be deleted."""

    # Of the newest call.
    credentials: Credentials
    # Client id -> the newest mutation whose result the client has acknowledged.
    acknowledged: dict[str, float] = field(default_factory=dict)
    # Deleted clients, all of whose results go; a dict because it keeps the order.
    deleted: dict[str, None] = field(default_factory=dict)

    def next_request(self, group_id: str) -> tuple[str, str, dict[str, Any]]:
        """Remove one request from this object: its client id, request id, and mutation argument."""
        if self.deleted:
            clients, self.deleted = list(self.deleted), {}
            for client_id in clients:
                self.acknowledged.pop(client_id, None)
            argument: dict[str, Any] = {"type": "bulk", "clientGroupID": group_id, "clientIDs": clients}
            return clients[0], f"cleanup-bulk-{group_id}-{_now()}", argument
        client_id = next(iter(self.acknowledged))
        up_to = self.acknowledged.pop(client_id)
        argument = {"type": "single", "clientGroupID": group_id, "clientID": client_id, "upToMutationID": up_to}
        return client_id, f"cleanup-{group_id}-{client_id}-{up_to}", argument


class Cleanups:
    """Sends the requests of all groups. Invariant: at most `MAX_REQUESTS` are running, and one per group."""

    def __init__(self, post: AppPost) -> None:
        self._post = post
        # By client group id, in the order in which their next requests are sent.
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        # The running request of each group; a task removes itself when it ends.
        self._running: dict[str, asyncio.Task[None]] = {}
        # Set by `stop`; later calls are ignored.
        self._stopped = False

    def results_acknowledged(self, group_id: str, credentials: Credentials, client_id: str, up_to: float) -> None:
        """Delete a client's results up to a mutation id (`ackMutationResponses`)."""
        pending = self._of(group_id, credentials)
        if pending is not None and (client_id in pending.acknowledged or len(pending.acknowledged) < MAX_CLIENTS):
            pending.acknowledged[client_id] = max(up_to, pending.acknowledged.get(client_id, up_to))
        self._send_next()

    def clients_deleted(self, group_id: str, credentials: Credentials, client_ids: Sequence[str]) -> None:
        """Delete all results of deleted clients."""
        pending = self._of(group_id, credentials) if client_ids else None
        if pending is not None:
            room = max(0, MAX_CLIENTS - len(pending.deleted))
            pending.deleted.update(dict.fromkeys(client_ids[:room]))
            self._send_next()

    async def stop(self) -> None:
        """Drop pending requests and cancel running ones."""
        self._stopped = True
        self._pending.clear()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _of(self, group_id: str, credentials: Credentials) -> _Pending | None:
        pending = self._pending.get(group_id)
        if pending is None:
            if self._stopped or len(self._pending) >= MAX_GROUPS:
                return None
            pending = self._pending[group_id] = _Pending(credentials)
        pending.credentials = credentials
        return pending

    def _send_next(self) -> None:
        if len(self._running) >= MAX_REQUESTS:
            return
        for group_id in [each for each in self._pending if each not in self._running]:
            self._send(group_id)
            if len(self._running) >= MAX_REQUESTS:
                return

    def _send(self, group_id: str) -> None:
        pending = self._pending.pop(group_id)
        if not pending.acknowledged and not pending.deleted:
            return
        client_id, request, argument = pending.next_request(group_id)
        if pending.acknowledged:
            self._pending[group_id] = pending  # at the end, behind the other groups
        now = _now()
        mutation = {"type": "custom", "id": 0, "clientID": client_id, "name": CLEANUP, "args": [argument]}
        body = {
            "clientGroupID": group_id,
            "mutations": [{**mutation, "timestamp": now}],
            "pushVersion": 1,
            "timestamp": now,
            "requestID": request,
        }
        task = asyncio.create_task(self._request(group_id, pending.credentials, body))
        self._running[group_id] = task

    async def _request(self, group_id: str, credentials: Credentials, body: dict[str, Any]) -> None:
        try:
            await self._post(credentials.mutate, credentials.token, body)
        except AppFailure as failure:
            event(log, logging.WARNING, "results were not cleaned up", why=failure.message)
        finally:
            del self._running[group_id]
            if not self._stopped:
                self._send_next()


def _now() -> int:
    return int(time.time() * 1000)
