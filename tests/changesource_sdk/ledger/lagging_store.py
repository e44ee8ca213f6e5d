"""A memory store that an application writes to through a ledger, and an adapter that shows it as late as it likes.

Every mutation writes one row, named after it; so in any prefix of the stream one can tell whether a confirmation came
before its data.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import Insert, Position, Transaction
from changesource_sdk.ledger.adapter import LedgeredAdapter
from changesource_sdk.schema import Column, Table
from protocol.sync.app_server import CLEANUP
from reference_cache.app_server import ApplicationError, Mutators
from reference_cache.app_server.push_processor import PushProcessor
from reference_cache.app_server.requests import parse_push
from reference_cache.app_server.stores.ledger import LedgerStore, LedgerTransaction

mutators = Mutators()


def a_store() -> MemoryStore:
    return MemoryStore([Table("note", [Column("id", str)])])


@mutators.define("write")
async def write(tx: LedgerTransaction[MemoryStore]) -> None:
    tx.wrote_at(tx.target.commit([Insert("note", {"id": tx.mutation})]))


@mutators.define("refuse")
async def refuse(tx: LedgerTransaction[MemoryStore]) -> None:
    raise ApplicationError("no")


@mutators.define("forgetful")
async def forgetful(tx: LedgerTransaction[MemoryStore]) -> None:
    tx.target.commit([Insert("note", {"id": tx.mutation})])


class LaggingAdapter(MemoryAdapter):
    """Shows only the first `visible` transactions; `show` lets it see more."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store=store)
        self.visible = 0
        self.more = threading.Condition()

    def show(self, visible: int) -> None:
        with self.more:
            self.visible = max(self.visible, visible)
            self.more.notify_all()

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, int)
        with self.more:
            self.more.wait_for(lambda: self._closed or self.visible > after, timeout=0.5)
            visible = self.visible
        for number, (time_ms, batch) in enumerate(self.store.history[after:visible], start=after + 1):
            yield Transaction(number, batch, time_ms)


class Application:
    """Clients' pushes into the store and its ledger."""

    def __init__(self, folder: Path) -> None:
        self.store = a_store()
        self.ledger = folder / "ledger.db"
        self.over = LedgerStore(self.ledger, self.store)
        self._processor = PushProcessor(mutators, self.over)

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        self.over.close()

    async def push(self, client: str, number: int, name: str = "write", argument: Any = None) -> Any:
        """The result of one mutation, or the answer to a push that failed."""
        args = [] if argument is None else [argument]
        mutation = {"type": "custom", "id": number, "clientID": client, "name": name, "args": args}
        body = {"clientGroupID": "g", "mutations": [mutation], "pushVersion": 1}
        answer = await self._processor.process(parse_push(body), "zero_0", None)
        return answer["mutations"][0]["result"] if answer.get("mutations") else answer

    async def clean_up(self, client: str, up_to: int) -> None:
        seen = {"type": "single", "clientGroupID": "g", "clientID": client, "upToMutationID": up_to}
        await self.push(client, 0, CLEANUP, seen)

    def adapter(self, inner: MemoryAdapter | None = None) -> LedgeredAdapter:
        return LedgeredAdapter(inner or MemoryAdapter(store=self.store), str(self.ledger))


class Consumer:
    """What a consumer holds after the payloads of a snapshot and a log; every commit is checked as it passes."""

    def __init__(self) -> None:
        self.notes: set[str] = set()
        self.confirmed: dict[str, int] = {}
        self.results: set[tuple[str, int]] = set()
        self.seen_twice: list[Any] = []
        self.overtaken: list[str] = []

    def take(self, payloads: list[bytes], refused: set[str]) -> None:
        for payload in payloads:
            message = json.loads(payload)
            if message[0] == "data" and "relation" in message[1]:
                self._row(message[1])
            if message[0] == "commit":
                self.check(refused)

    def check(self, refused: set[str]) -> None:
        """Whatever is confirmed is here, unless it was refused."""
        for client, last in self.confirmed.items():
            written = {f"g/{client}/{number}" for number in range(1, last + 1)}
            self.overtaken += sorted(written - self.notes - refused)

    def _row(self, change: Any) -> None:
        row, table = change.get("new") or change.get("key"), change["relation"]["name"]
        if table == "note":
            self._once(row["id"], self.notes)
            self.notes.add(row["id"])
        elif table == "clients":
            before = self.confirmed.get(row["clientID"], 0)
            if row["lastMutationID"] != before + 1 and change["tag"] != "insert":
                self.seen_twice.append(row)
            self.confirmed[row["clientID"]] = row["lastMutationID"]
        elif change["tag"] == "delete":
            self.results.discard((row["clientID"], row["mutationID"]))
        else:
            self.results.add((row["clientID"], row["mutationID"]))

    def _once(self, key: str, held: set[str]) -> None:
        if key in held:
            self.seen_twice.append(key)
