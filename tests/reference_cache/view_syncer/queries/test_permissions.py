"""Ad hoc queries see what the deployed rules allow, for whom they allow it."""

from __future__ import annotations

import json
from typing import Any

from protocol.sync.messages import InitConnection
from reference_cache.view_syncer.api import ClientInfo
from tests.reference_cache.view_syncer.clients import SCHEMA, Client, ad_hoc
from tests.reference_cache.view_syncer.conftest import Setup, equals, issue, related

MINE = {
    "type": "simple",
    "op": "=",
    "left": {"type": "column", "name": "owner"},
    "right": {"type": "static", "anchor": "authData", "field": "sub"},
}
ANYONE = {"type": "and", "conditions": []}
TALK = {"table": "issue", "related": [related("comment", "id", "issue")]}


def deployed(**rules: Any) -> tuple[str, str, dict[str, Any]]:
    tables = {table: {"row": {"select": [["allow", each] for each in select]}} for table, select in rules.items()}
    document = json.dumps({"tables": tables})
    return "put", "zero.permissions", {"lock": True, "permissions": {"tables": tables}, "hash": document}


async def connected(setup: Setup, name: str, ast: Any) -> Client:
    client = Client(name, f"group of {name}", user_id=name)
    init = InitConnection.model_validate({"desiredQueriesPatch": [ad_hoc("q", ast)]})
    init = init.model_copy(update={"client_schema": SCHEMA})
    info = ClientInfo(name, client.group_id, name, auth_data={"sub": name})
    client.connection = await setup.syncer.connect(info, init, client)
    return client


async def test_without_rules_nothing_is_seen_and_the_query_is_complete(setup: Setup) -> None:
    await setup.commit(("put", "issue", issue("1")))
    client = await connected(setup, "ann", {"table": "issue"})
    assert (client.rows, client.got) == ({}, {"q"})


async def test_each_client_sees_what_the_rules_allow(setup: Setup) -> None:
    comment = {"id": "c", "issue": "1", "text": "hello"}
    await setup.commit(deployed(issue=[MINE]), ("put", "issue", issue("1", "ann")), ("put", "issue", issue("2", "bob")))
    await setup.commit(("put", "comment", comment))
    ann, bob = await connected(setup, "ann", TALK), await connected(setup, "bob", TALK)
    assert list(ann.rows.values()) == [issue("1", "ann")]
    assert list(bob.rows.values()) == [issue("2", "bob")]
    await setup.commit(("put", "issue", issue("3", "bob")))
    assert (len(ann.rows), len(bob.rows)) == (1, 2)


async def test_new_rules_apply_to_running_queries(setup: Setup) -> None:
    await setup.commit(deployed(issue=[MINE]), ("put", "issue", issue("1", "ann")), ("put", "issue", issue("2", "bob")))
    client = await connected(setup, "ann", {"table": "issue", "where": equals("open", True)})
    assert len(client.rows) == 1
    await setup.commit(deployed(issue=[ANYONE]))
    await setup.settled()
    assert client.rows == setup.world.everything()
    await setup.commit(deployed(issue=[]))
    await setup.settled()
    assert client.rows == {}


async def test_rows_that_only_decide_a_rule_stay_on_the_server(setup: Setup) -> None:
    labelled = {
        "type": "correlatedSubquery",
        "op": "EXISTS",
        "related": {**related("label", "id", "issue"), "system": "permissions"},
    }
    await setup.commit(deployed(issue=[labelled]), ("put", "issue", issue("1")), ("put", "issue", issue("2")))
    await setup.commit(("put", "label", {"issue": "1", "name": "public"}))
    client = await connected(setup, "ann", {"table": "issue"})
    assert list(client.rows.values()) == [issue("1")]
