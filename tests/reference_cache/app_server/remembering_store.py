"""A store of push processing that keeps everything in memory and fails on request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from reference_cache.app_server.requests import CleanUp, CleanUpMany
from reference_cache.app_server.stores.store import ClientKey


class Passing(Exception):
    """What this store says is worth another try."""


class RememberingStore:
    """Committed rows, last ids and results. `failures` are raised one by one: at `begin`, `record` or `commit`."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.last: dict[ClientKey, int] = {}
        self.results: dict[tuple[ClientKey, int], Any] = {}
        self.failures: list[tuple[str, Exception]] = []
        self.begun = 0

    @asynccontextmanager
    async def transaction(self, client: ClientKey) -> AsyncIterator[Remembering]:
        self.begun += 1
        self.fail_at("begin")
        one = Remembering(self, client)
        yield one
        self.fail_at("commit")
        self.rows, self.last, self.results = one.rows, one.last, one.results

    def is_transient(self, error: Exception) -> bool:
        return isinstance(error, Passing)

    def fail_at(self, place: str) -> None:
        if self.failures and self.failures[0][0] == place:
            raise self.failures.pop(0)[1]


class Remembering:
    """One transaction: copies of everything, taken over at its commit."""

    def __init__(self, store: RememberingStore, client: ClientKey) -> None:
        self._store, self._client = store, client
        self.rows, self.last, self.results = dict(store.rows), dict(store.last), dict(store.results)

    @property
    def tx(self) -> dict[str, Any]:
        return self.rows

    async def next_mutation_id(self) -> int:
        self.last[self._client] = self.last.get(self._client, 0) + 1
        return self.last[self._client]

    async def record_result(self, mutation_id: int, result: dict[str, Any]) -> None:
        self._store.fail_at("record")
        self.results[self._client, mutation_id] = result

    async def delete_results(self, clean_up: CleanUp) -> None:
        if isinstance(clean_up, CleanUpMany):
            gone = [key for key in self.results if key[0].client_id in clean_up.client_ids]
        else:
            gone = [key for key in self.results if key[1] <= clean_up.up_to_mutation_id]
        for key in gone:
            del self.results[key]
