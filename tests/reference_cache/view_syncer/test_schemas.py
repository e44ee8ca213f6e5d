"""Clients and tables that do not fit, tables that change, and a replica that is synced from scratch."""

from __future__ import annotations

from gc import collect
from typing import Any
from weakref import ref

import pytest

from protocol.changes import AddColumn, CreateIndex, DropColumn, DropTable, Truncate, UpdateColumn
from protocol.specs import Column, ColumnSpec, Identifier, Relation
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.view_syncer.cvr.client_schema import KnownSchemas
from tests.reference_cache.view_syncer.clients import SCHEMA, Client, named
from tests.reference_cache.view_syncer.conftest import Setup, issue
from tests.reference_cache.view_syncer.world import create_index

ISSUE = Identifier.model_validate({"schema": "public", "name": "issue"})


def schema(**tables: Any) -> dict[str, Any]:
    return {"clientSchema": {"tables": {**SCHEMA.model_dump()["tables"], **tables}}}


def test_equal_client_schemas_are_kept_once_and_only_while_used() -> None:
    known = KnownSchemas()
    first, second = SCHEMA.model_copy(deep=True), SCHEMA.model_copy(deep=True)
    assert known.shared(first) is first
    assert known.shared(second) is first
    gone = ref(first)
    del first
    collect()
    assert gone() is None
    assert known.shared(second) is second


async def refused(client: Client, setup: Setup, **init: Any) -> SyncError:
    with pytest.raises(SyncError) as caught:
        await client.connect(setup.syncer, [named("all")], **init)
    return caught.value


async def test_a_client_with_other_tables_gets_all_schema_errors_after_its_desired_queries(setup: Setup) -> None:
    wrong = schema(
        ghost={"columns": {"id": {"type": "string"}}, "primaryKey": ["id"]},
        comment={"columns": {"id": {"type": "number"}, "mood": {"type": "string"}}, "primaryKey": ["text"]},
    )
    client = Client("c1", "g1")
    error = await refused(client, setup, **wrong)
    assert error.kind == ErrorKind.SCHEMA_VERSION_NOT_SUPPORTED
    assert error.message.splitlines() == [
        'The "ghost" table does not exist or is not one of the replicated tables.',
        'The "comment"."mood" column does not exist or is not one of the replicated columns.',
        'The "comment"."id" column\'s upstream type "string" does not match the client type "number"',
        'The "comment" table\'s primaryKey <text> is not associated with a non-null unique index.',
    ]
    assert client.cookie == "00:01"


async def test_a_new_group_needs_a_schema_and_a_known_one_the_same(setup: Setup) -> None:
    client = Client("c1", "g1")
    client.cookie = None
    await client.connect(setup.syncer, [named("all")])
    other = Client("c2", "g1")
    error = await refused(other, setup, clientSchema={"tables": {}})
    assert error.kind == ErrorKind.INVALID_CONNECTION_REQUEST


async def test_a_new_column_reaches_clients_with_the_rows(setup: Setup) -> None:
    await setup.commit(("put", "issue", issue("1")))
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    column = Column(name="due", spec=ColumnSpec(pos=9, data_type="text", dflt="'soon'::text"))
    await setup.commit(AddColumn(table=ISSUE, column=column))
    assert list(client.rows.values()) == [{**issue("1"), "due": "soon"}]
    await setup.commit(("put", "issue", {**issue("2"), "due": "late"}))
    assert client.rows == setup.world.everything()
    assert client.errors == []


async def test_a_dropped_column_disconnects_only_clients_that_use_it(setup: Setup) -> None:
    await setup.commit(("put", "issue", issue("1")))
    narrow = {"columns": {"id": {"type": "string"}}, "primaryKey": ["id"]}
    wide, modest = Client("c1", "g1"), Client("c2", "g2")
    await wide.connect(setup.syncer, [named("all")])
    await modest.connect(setup.syncer, [named("all")], clientSchema={"tables": {"issue": narrow}})
    await setup.commit(DropColumn(table=ISSUE, column="rank"))
    assert [error.kind for error in wide.errors] == [ErrorKind.SCHEMA_VERSION_NOT_SUPPORTED]
    assert modest.errors == []
    assert modest.rows == setup.world.everything()


async def test_a_query_whose_table_is_dropped_fails_its_group_only(setup: Setup) -> None:
    narrow = {"columns": {"id": {"type": "string"}}, "primaryKey": ["id"]}
    gone, kept = Client("c1", "g1"), Client("c2", "g2")
    for client, query in ((gone, "comments"), (kept, "all")):
        await client.connect(setup.syncer, [named(query)], clientSchema={"tables": {"issue": narrow}})
    await setup.commit(DropTable(id=Identifier.model_validate({"schema": "public", "name": "comment"})))
    assert [error.kind for error in gone.errors] == [ErrorKind.INTERNAL]
    await setup.commit(("put", "issue", issue("1")))
    assert kept.rows == {("issue", '{"id":"1"}'): issue("1")}


async def test_an_emptied_table_empties_views(setup: Setup) -> None:
    await setup.commit(("put", "issue", issue("1")), ("put", "issue", issue("2")))
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    relation = Relation.model_validate({"schema": "public", "name": "issue", "rowKey": {"columns": ["id"]}})
    await setup.commit(Truncate(relations=(relation,)), ("put", "issue", issue("3")))
    assert client.rows == {("issue", '{"id":"3"}'): issue("3")}


async def test_a_replica_synced_from_scratch_makes_all_clients_start_over(setup: Setup) -> None:
    await setup.commit(("put", "issue", issue("1")))
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    setup.world.start_over()
    setup.syncer.notify()
    await setup.syncer.reached(setup.world.version)
    assert [error.kind for error in client.errors] == [ErrorKind.CLIENT_NOT_FOUND]
    assert (await refused(client, setup)).kind == ErrorKind.CLIENT_NOT_FOUND
    fresh = Client("c1", "g9")
    await fresh.connect(setup.syncer, [named("all")])
    assert fresh.rows == {}


async def test_records_of_another_replica_are_not_used_after_a_restart(setup: Setup) -> None:
    client = Client("c1", "g1")
    await client.connect(setup.syncer, [named("all")])
    await setup.syncer.stop()
    setup.world.start_over()
    await setup.start_again()
    assert (await refused(client, setup)).kind == ErrorKind.CLIENT_NOT_FOUND


async def test_rows_are_identified_by_the_key_the_client_names(setup: Setup) -> None:
    both = create_index("issue", ("id",)).spec
    by_owner = both.model_copy(update={"name": "issue_by_owner", "columns": {"owner": "ASC"}})
    not_null = ColumnSpec(pos=1, data_type="text", not_null=True)
    old = Column(name="owner", spec=ColumnSpec(pos=1, data_type="text"))
    await setup.commit(
        UpdateColumn(table=ISSUE, old=old, new=Column(name="owner", spec=not_null)), CreateIndex(spec=by_owner)
    )
    await setup.commit(("put", "issue", issue("1", "ann")), ("put", "issue", issue("2", "bob")))
    wide = SCHEMA.model_dump()["tables"]["issue"]
    by_name = {"columns": wide["columns"], "primaryKey": ["owner"]}
    mine, yours = Client("c1", "g1"), Client("c2", "g2")
    yours.keys["issue"] = ("owner",)
    await mine.connect(setup.syncer, [named("all")])
    await yours.connect(setup.syncer, [named("all")], clientSchema={"tables": {"issue": by_name}})
    await setup.commit(("del", "issue", issue("1")), ("put", "issue", {**issue("2"), "owner": "cid"}))
    assert {patch["op"]: patch.get("id") for patch in mine.row_patches(2)} == {"del": {"id": "1"}, "put": None}
    told = [patch.get("id") for patch in yours.row_patches(2) if patch["op"] == "del"]
    assert sorted(told, key=str) == [{"owner": "ann"}, {"owner": "bob"}]
    assert mine.rows == setup.world.everything()
    assert yours.rows == {("issue", '{"owner":"cid"}'): issue("2", "cid")}
