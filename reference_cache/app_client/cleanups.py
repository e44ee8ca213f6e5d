"""Mutation results that clients have seen, or whose clients are gone: the application is asked to delete them.

A request that fails costs the application some space and nobody anything else, so these requests never compete with
mutations for connections: few are under way at once, one per client group, and what a group asks for meanwhile is
merged. Above a limit requests are dropped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reference_cache.app_client.credentials import Credentials
from reference_cache.app_client.post import AppFailure, AppPost
from service_kit.logs import event, logger

log = logger("cache.mutations")

CLEANUP = "_zero_cleanupResults"
AT_ONCE = 8
"""Requests that may be under way."""

MOST_GROUPS = 10_000
MOST_CLIENTS = 1_000
"""Groups that may wait, and clients of one group; more are dropped."""


@dataclass(slots=True)
class _Pending:
    """What one group waits for. `credentials` are those of its newest request."""

    credentials: Credentials
    seen: dict[str, float] = field(default_factory=dict)  # client -> its newest mutation whose result was seen
    gone: dict[str, None] = field(default_factory=dict)  # clients whose results all go, in the order they were named

    def arguments(self, group_id: str) -> tuple[str, str, dict[str, Any]]:
        """Take the next request: the client it is sent for, its id, and the argument of its mutation."""
        if self.gone:
            clients, self.gone = list(self.gone), {}
            for client_id in clients:
                self.seen.pop(client_id, None)
            argument: dict[str, Any] = {"type": "bulk", "clientGroupID": group_id, "clientIDs": clients}
            return clients[0], f"cleanup-bulk-{group_id}-{_now()}", argument
        client_id = next(iter(self.seen))
        up_to = self.seen.pop(client_id)
        argument = {"type": "single", "clientGroupID": group_id, "clientID": client_id, "upToMutationID": up_to}
        return client_id, f"cleanup-{group_id}-{client_id}-{up_to}", argument


class Cleanups:
    """Sends the requests of all groups. Invariant: at most `AT_ONCE` are under way, and one per group."""

    def __init__(self, post: AppPost) -> None:
        self._post = post
        self._pending: OrderedDict[str, _Pending] = OrderedDict()  # groups that wait, in the order of their turns
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._stopped = False

    def results_seen(self, group_id: str, credentials: Credentials, client_id: str, up_to: float) -> None:
        """A client has seen its results up to a mutation."""
        pending = self._of(group_id, credentials)
        if pending is not None and (client_id in pending.seen or len(pending.seen) < MOST_CLIENTS):
            pending.seen[client_id] = max(up_to, pending.seen.get(client_id, up_to))
        self._send_next()

    def clients_deleted(self, group_id: str, credentials: Credentials, client_ids: Sequence[str]) -> None:
        """Clients are gone, and nobody will ask for their results."""
        pending = self._of(group_id, credentials) if client_ids else None
        if pending is not None:
            room = max(0, MOST_CLIENTS - len(pending.gone))
            pending.gone.update(dict.fromkeys(client_ids[:room]))
            self._send_next()

    async def stop(self) -> None:
        """Give up what is under way."""
        self._stopped = True
        self._pending.clear()
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _of(self, group_id: str, credentials: Credentials) -> _Pending | None:
        pending = self._pending.get(group_id)
        if pending is None:
            if self._stopped or len(self._pending) >= MOST_GROUPS:
                return None
            pending = self._pending[group_id] = _Pending(credentials)
        pending.credentials = credentials
        return pending

    def _send_next(self) -> None:
        if len(self._under_way) >= AT_ONCE:
            return
        for group_id in [each for each in self._pending if each not in self._under_way]:
            self._send(group_id)
            if len(self._under_way) >= AT_ONCE:
                return

    def _send(self, group_id: str) -> None:
        pending = self._pending.pop(group_id)
        if not pending.seen and not pending.gone:
            return
        client_id, request, argument = pending.arguments(group_id)
        if pending.seen:
            self._pending[group_id] = pending  # behind the groups that wait
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
        self._under_way[group_id] = task

    async def _request(self, group_id: str, credentials: Credentials, body: dict[str, Any]) -> None:
        try:
            await self._post(credentials.mutate, credentials.token, body)
        except AppFailure as failure:
            event(log, logging.WARNING, "results were not cleaned up", why=failure.message)
        finally:
            del self._under_way[group_id]
            if not self._stopped:
                self._send_next()


def _now() -> int:
    return int(time.time() * 1000)
