"""Random histories: whatever happens, every connected client has exactly the rows of its queries.

Groups, clients and queries come and go, data changes, clients fall back to older states of themselves or lose
everything, queries expire or change their meaning, the process stops or dies. After every step each connected client is
compared with a fresh evaluation. `SYNCER_HISTORIES` and `SYNCER_STEPS` say how many histories of how many steps.
"""

from __future__ import annotations

import asyncio
import copy
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from protocol.changes import Truncate
from protocol.specs import Relation
from protocol.sync.ast_json import parse
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.credentials import Credentials
from reference_cache.view_syncer.pipelines.driver import Pipelines
from reference_cache.zql.tables.memory import memory_source
from tests.reference_cache.view_syncer.clients import Client, dropped, named
from tests.reference_cache.view_syncer.conftest import QUERIES, Setup, issue
from tests.reference_cache.view_syncer.world import Rows
from tests.support.zql.recording_engine import RecordingEngine

HISTORIES = int(os.environ.get("SYNCER_HISTORIES", "8"))
STEPS = int(os.environ.get("SYNCER_STEPS", "50"))

STATE = ("cookie", "rows", "got", "desired", "last_mutation_ids", "results")


class Player:
    """A client, what it wants, and the states of itself it may fall back to."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.wants: set[str] = set()
        self.past: list[dict[str, Any]] = []

    @property
    def connected(self) -> bool:
        return self.client.connection is not None

    def remember(self) -> None:
        self.past.append({name: copy.deepcopy(getattr(self.client, name)) for name in STATE})

    def fall_back(self, state: dict[str, Any]) -> None:
        for name in STATE:
            setattr(self.client, name, copy.deepcopy(state[name]))


class History:
    """One random history. Invariant: after each step every connected client is right."""

    def __init__(self, setup: Setup, random: Random) -> None:
        self.setup = setup
        self.random = random
        self.players = [Player(Client(f"c{n}", f"g{n % 3}")) for n in range(6)]
        self.variant = 0
        self.has_forgotten = False

    async def step(self) -> str:
        name = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        await getattr(self, name)()
        await self.setup.syncer.reached(self.setup.world.version)
        for player in self.players:
            if player.connected:
                self.check(player)
                if self.random.random() < 0.3:
                    player.remember()
        return name

    async def change_data(self) -> None:
        changes = [self._change() for _ in range(self.random.randint(1, 4))]
        await self.setup.commit(*changes)

    def _change(self) -> tuple[str, str, dict[str, Any]]:
        random = self.random
        op = random.choice(["put", "put", "put", "del"])
        number = str(random.randint(0, 7))
        match random.randint(0, 3):
            case 0:
                return op, "comment", {"id": number, "issue": str(random.randint(0, 7)), "text": random.choice("xyz")}
            case 1:
                return op, "label", {"issue": number, "name": random.choice("pq")}
            case _:
                row = issue(number, random.choice(["ann", "bob"]), random.randint(0, 5), open=random.random() < 0.5)
                return op, "issue", row

    async def empty_a_table(self) -> None:
        table = self.random.choice(["comment", "label"])
        relation = Relation.model_validate(
            {"schema": "public", "name": table, "rowKey": {"columns": list(self.setup.world.keys[table])}}
        )
        await self.setup.commit(Truncate(relations=(relation,)))

    async def confirm_a_mutation(self) -> None:
        client = self.random.choice(self.players).client
        row = {"clientGroupID": client.group_id, "clientID": client.client_id, "userID": None}
        await self.setup.commit(("put", "zero_0.clients", {**row, "lastMutationID": self.setup.world.number}))

    async def connect(self) -> None:
        away = [player for player in self.players if not player.connected]
        if not away:
            return
        player = self.random.choice(away)
        if player.past and self.random.random() < 0.3:
            player.fall_back(self.random.choice(player.past))
        elif self.random.random() < 0.1:
            player.client = Client(player.client.client_id, player.client.group_id)
        try:
            await self._connect(player)
        except SyncError as error:
            if error.kind != ErrorKind.CLIENT_NOT_FOUND or not self.has_forgotten:
                raise
            player.client = Client(player.client.client_id, player.client.group_id)
            await self._connect(player)

    async def _connect(self, player: Player) -> None:
        wishes = self._wishes(player)
        known = player.client.desired.get(player.client.client_id, set())
        patch = [named(hash) for hash in sorted(wishes - known)] + [dropped(hash) for hash in sorted(known - wishes)]
        await player.client.connect(self.setup.syncer, patch)
        # A client that fell back is told what it has wished for since, and that holds.
        player.wants = set(player.client.desired.get(player.client.client_id, set()))

    def _wishes(self, player: Player) -> set[str]:
        return set(self.random.sample(sorted(QUERIES), self.random.randint(0, 3))) or set(player.wants)

    async def disconnect(self) -> None:
        for player in self._one_connected():
            await player.client.close()

    async def leave_for_long(self) -> None:
        await self.disconnect()
        await self.setup.syncer.housekeeping.stop_abandoned()

    async def want(self) -> None:
        for player in self._one_connected():
            hash = self.random.choice(sorted(QUERIES))
            player.wants.add(hash)
            await player.client.change(named(hash, ttl=self.random.choice([None, 0, 1000])))

    async def want_no_more(self) -> None:
        for player in self._one_connected():
            if player.wants:
                hash = self.random.choice(sorted(player.wants))
                player.wants.discard(hash)
                await player.client.change(dropped(hash))

    async def want_nothing(self) -> None:
        for player in self._one_connected():
            player.wants.clear()
            await player.client.change({"op": "clear"})

    async def let_time_pass(self) -> None:
        self.setup.time += 1000
        await self.setup.evict_expired()

    async def mean_something_else(self) -> None:
        """The application's query is another one from now on, for those who ask again."""
        self.variant += 1
        owner = "ann" if self.variant % 2 else "bob"
        self.setup.app.queries["open"] = QUERIES[f"{owner}s"]
        for group in {player.client.group_id for player in self.players if player.connected}:
            speaker = next(each for each in self.players if each.connected and each.client.group_id == group)
            assert speaker.client.connection is not None
            await speaker.client.connection.update_auth(Credentials(token="new"))

    async def forget(self) -> None:
        """Everything that was gone the last time this happened, and groups nobody is connected to, are forgotten."""
        self.has_forgotten = True
        self.setup.syncer.housekeeping.purge()
        await self.change_data()  # so that no cookie of a forgotten group is of the version a new one begins with

    async def many_at_once(self) -> None:
        """What several clients do, and what happens to the data, all under way together."""
        busy = self.players
        self.setup.app.turns = self.random.choice([0, 3, 30, 100])
        work = []
        for part in (busy[0:2], busy[2:4], busy[4:6]):
            self.players = part
            name = self.random.choice(["connect", "disconnect", "want", "want_no_more", "want_nothing"])
            data = self.random.choice(["change_data", "confirm_a_mutation", "empty_a_table"])
            work += [asyncio.ensure_future(getattr(self, each)()) for each in (name, data)]
            await asyncio.sleep(0)
        self.players = busy
        await asyncio.gather(*work)

    async def restart(self) -> None:
        self._all_away()
        await self.setup.restart()

    async def die(self) -> None:
        self._all_away()
        await self.setup.crash()

    def _all_away(self) -> None:
        for player in self.players:
            player.client.connection = None

    def _one_connected(self) -> list[Player]:
        found = [player for player in self.players if player.connected]
        return [self.random.choice(found)] if found else []

    def check(self, player: Player) -> None:
        client, world = player.client, self.setup.world
        assert client.errors == []
        assert client.desired.get(client.client_id, set()) == player.wants
        assert player.wants <= client.got
        queries = {hash: parse(self.setup.app.queries[hash]) for hash in client.got}
        everything = world.everything()
        assert {place: everything.get(place) for place in client.rows} == client.rows, "a row is stale"
        plain = world.rows_of([query for hash, query in queries.items() if hash != "labelled"])
        assert plain.items() <= client.rows.items() if "labelled" in queries else plain == client.rows
        for query in queries.values():
            assert self.roots(query, client.rows) == self.roots(query, everything)
        confirmed = {each.client.client_id for each in self.players if each.client.group_id == client.group_id}
        assert client.last_mutation_ids.keys() <= confirmed

    def roots(self, query: Any, rows: Rows) -> set[tuple[Any, ...]]:
        """The rows of a query's own table, evaluated on these rows only."""
        schema, _ = self.setup.world.tables()
        by_table: dict[str, list[tuple[Any, ...]]] = {name: [] for name in schema.tables}
        for (table, _), row in rows.items():
            by_table[table].append((*row.values(), ""))
        engine = RecordingEngine(schema, lambda table: memory_source(table, by_table[table.name]))
        return {change.row for change in engine.rows("q", query) if change.table == query.table}


WEIGHTS = {
    "change_data": 12,
    "connect": 6,
    "disconnect": 2,
    "leave_for_long": 2,
    "want": 4,
    "want_no_more": 2,
    "want_nothing": 1,
    "let_time_pass": 2,
    "confirm_a_mutation": 2,
    "mean_something_else": 1,
    "many_at_once": 3,
    "forget": 1,
    "empty_a_table": 1,
    "restart": 1,
    "die": 1,
}


@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_every_client_always_has_the_rows_of_its_queries(tmp_path: Path, seed: int) -> None:
    await play(tmp_path, seed, STEPS)


@pytest.mark.parametrize("seed", range(100, 100 + max(2, HISTORIES // 4)))
async def test_so_it_is_when_every_query_is_hydrated_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    async def never(*_: object) -> None:
        return None

    monkeypatch.setattr(Pipelines, "_start_soon", never)
    await play(tmp_path, seed, STEPS)


async def play(folder: Path, seed: int, steps: int) -> None:
    setup = Setup(folder, time_slice=0.0 if seed % 2 else 0.01)
    setup.forget_after(-1.0)
    await setup.start_again()
    history = History(setup, Random(seed))
    taken = []
    try:
        for _ in range(steps):
            taken.append(await history.step())
    except BaseException:
        print("steps:", taken)
        raise
    finally:
        await setup.syncer.stop()
    assert "change_data" in taken
