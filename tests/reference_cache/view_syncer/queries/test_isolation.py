"""Nothing of one user's rows reaches another, though all of them ask for the same query by the same name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from protocol.sync.ast import Query
from protocol.sync.ast_json import parse
from protocol.sync.messages import InitConnection
from reference_cache.credentials import Credentials
from reference_cache.view_syncer.api import ClientInfo, NamedQueryCall, QueryFailure
from tests.reference_cache.view_syncer.clients import SCHEMA, Client, named
from tests.reference_cache.view_syncer.conftest import Setup, equals, issue, related

USERS = ("ann", "bob", "cid")


class PerUser:
    """An application whose only query selects the rows of the user who sends it."""

    async def validate(self, credentials: Credentials) -> bool:
        return False

    async def transform(
        self, credentials: Credentials, queries: Sequence[NamedQueryCall]
    ) -> dict[str, Query | QueryFailure]:
        mine = {
            "table": "issue",
            "where": equals("owner", credentials.user_id),
            "related": [related("comment", "id", "issue")],
        }
        return {query.hash: parse(mine) for query in queries}


async def connect(client: Client, setup: Setup) -> None:
    assert client.user_id is not None
    patch = [named("mine")] if client.cookie is None else []
    init = InitConnection.model_validate({"desiredQueriesPatch": patch})
    if client.cookie is None:
        init = init.model_copy(update={"client_schema": SCHEMA})
    info = ClientInfo(
        client.client_id, client.group_id, client.user_id, client.cookie, credentials=Credentials(client.user_id)
    )
    client.connection = await setup.syncer.connect(info, init, client)


@pytest.mark.parametrize("seed", range(3))
async def test_rows_reach_only_those_who_may_see_them(setup: Setup, seed: int) -> None:
    random = Random(seed)
    setup.syncer._services = replace(setup.syncer._services, transformer=PerUser())
    clients = {user: Client(user, f"group of {user}", user_id=user) for user in USERS}
    owners: dict[str, set[str]] = defaultdict(set)
    seen = dict.fromkeys(USERS, 0)
    for _ in range(60):
        user = random.choice(USERS)
        if clients[user].connection is None:
            await connect(clients[user], setup)
        elif random.random() < 0.3:
            await clients[user].close()
        number, owner = str(random.randint(0, 5)), random.choice(USERS)
        owners[number].add(owner)
        comment = {"id": number, "issue": number, "text": owner}
        await setup.commit(("put", "issue", issue(number, owner)), ("put", "comment", comment))
        for name, client in clients.items():
            for patch in client.row_patches():
                value = patch.get("value", {})
                assert value.get("owner", name) == name
                assert value.get("text", name) == name
                assert name in owners[patch["id"]["id"] if patch["op"] == "del" else value["id"]]
                seen[name] += 1
    assert all(seen.values()), "no client was sent anything, so this proves nothing"
