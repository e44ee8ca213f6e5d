"""The official client over a store that cannot hold confirmations, through both caches: none comes before its data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from reference_cache.app_server import ApplicationError, Mutators
from reference_cache.app_server.stores.ledger import LedgerStore, LedgerTransaction
from tests.support.apps.journal_store import Journal
from tests.support.apps.server import AppServer, SetTitle
from tests.support.fixtures.zero_cache import zero_caches
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.peers.scenario_client import ScenarioClients
from tests.support.peers.serving import Serving
from tests.support.peers.zero_cache import ZeroCache

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

LAG_SECONDS = 0.3
SECONDS = 120.0
mutators = Mutators()


@mutators.define("issue.setTitle")
async def set_title(tx: LedgerTransaction[Journal], args: SetTitle) -> None:
    if args.title == "forbidden":
        raise ApplicationError("not allowed by the server")
    tx.wrote_at(tx.target.append({"id": args.id, "title": args.title}))


@pytest.fixture(scope="module")
def caches(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, ReferenceCache | ZeroCache]]:
    """Ours and the official one, over one endpoint, one store and one application."""
    folder = tmp_path_factory.mktemp("ledger")
    journal = Journal(folder / "journal")
    for name in ("ours", "official"):
        journal.append({"id": name, "title": "old", "open": True, "owner_id": "u1", "modified": 1})
    with ExitStack() as stack:
        app = stack.enter_context(AppServer(LedgerStore(folder / "ledger.db", journal), "ann-token", mutators=mutators))
        settings = {"path": str(journal.path), "lag": str(LAG_SECONDS)}
        options = ("--ledger", str(folder / "ledger.db"))
        adapter = "tests.support.apps.journal_store:JournalAdapter"
        endpoint = stack.enter_context(Serving(adapter, settings, folder / "state", options=options))
        stack.callback(lambda: print(endpoint.process.tail(40)))
        endpoint.start()
        official = stack.enter_context(zero_caches(postgres, folder))(endpoint.stream_url, **app.settings)
        official.launch()
        ours = stack.enter_context(ReferenceCache(endpoint.stream_url, folder, settings=app.settings)).start()
        official.wait_until_ready()
        yield {"ours": ours, "official": official}


@pytest.mark.parametrize("name", ["ours", "official"])
def test_data_comes_before_or_with_its_confirmation(caches: dict[str, ReferenceCache | ZeroCache], name: str) -> None:
    with ScenarioClients(caches[name].url) as clients:
        clients.open("ann", userID="ann", auth="ann-token")
        clients.query("ann", "openByOwner", {"owner": "u1"})
        clients.wait(lambda: clients.rows("ann", "openByOwner"), "the rows", seconds=SECONDS)
        for number in (1, 2, 3):
            clients.mark()
            clients.mutate("ann", number, name, f"title {number}")
            outcome = clients.wait(partial(clients.outcome, "ann", number), "the outcome", seconds=SECONDS)
            assert outcome["type"] == "success"
            assert told(clients, name)[-1] == (f"title {number}", number)
        clients.mutate("ann", 4, name, "forbidden")
        outcome = clients.wait(lambda: clients.outcome("ann", 4), "the refusal", seconds=SECONDS)
        assert "not allowed by the server" in outcome["error"]["message"]
        clients.wait(
            lambda: clients.pokes("ann")["results"].get("ann:4", [""])[0] == "del", "the result gone", seconds=SECONDS
        )
        clients.wait(lambda: title(clients, name) == "title 3", "the optimistic title gone", seconds=SECONDS)


def title(clients: ScenarioClients, issue: str) -> str:
    """What the client shows."""
    return next(str(row["title"]) for row in clients.rows("ann", "openByOwner") if row["id"] == issue)


def told(clients: ScenarioClients, issue: str) -> list[tuple[str | None, int]]:
    """Every confirmation of this step, with the title that the client had been told by then."""
    known, found = None, []
    for part in clients.frames("ann", "pokePart"):
        patches: list[Any] = part.get("rowsPatch", [])
        for patch in patches:
            if patch["op"] == "put" and patch["value"].get("id") == issue:
                known = patch["value"]["title"]
        found += [(known, number) for number in part.get("lastMutationIDChanges", {}).values()]
    return found
