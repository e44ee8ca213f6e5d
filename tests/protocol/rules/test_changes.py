"""What a replica with one table, `issue`, can and cannot apply."""

import pytest

from protocol.changes import Change
from protocol.codec import parse_downstream
from protocol.messages import Data, JsonMode
from protocol.rules.changes import problems
from protocol.rules.replica import CheckedReplica
from protocol.specs import JsonObject

ISSUE: JsonObject = {"schema": "public", "name": "issue"}
GHOST: JsonObject = {"schema": "public", "name": "ghost"}
BY_ID: JsonObject = {**ISSUE, "rowKey": {"columns": ["id"]}}
FULL: JsonObject = {**ISSUE, "rowKey": {"columns": ["id", "title"], "type": "full"}}
KEYLESS: JsonObject = {**ISSUE, "rowKey": {"columns": []}}


def change(tag: str, **fields: object) -> Change:
    message = parse_downstream(["data", {"tag": tag, **fields}])
    assert isinstance(message, Data)
    return message.change


def column(name: str, data_type: str = "text", **more: object) -> JsonObject:
    return {"name": name, "spec": {"pos": 9, "dataType": data_type, **more}}


def create(name: str, **columns: JsonObject) -> Change:
    return change("create-table", spec={"schema": "public", "name": name, "columns": columns})


def index(name: str, *columns: str, table: str = "issue", unique: bool = True) -> Change:
    spec = {"schema": "public", "tableName": table, "name": name, "unique": unique}
    return change("create-index", spec={**spec, "columns": dict.fromkeys(columns, "ASC")})


@pytest.fixture
def replica() -> CheckedReplica:
    replica = CheckedReplica(complete=True)
    replica.apply_change(
        create(
            "issue",
            id={"pos": 1, "dataType": "int8", "notNull": True},
            title={"pos": 2, "dataType": "text"},
            meta={"pos": 3, "dataType": "json"},
        )
    )
    replica.apply_change(index("issue_pkey", "id"))
    replica.apply_change(change("insert", relation=BY_ID, new={"id": 1, "title": "a", "meta": None}))
    return replica


def broken(replica: CheckedReplica, *changes: Change, json_mode: JsonMode = "p") -> list[str]:
    return [problem.rule for each in changes for problem in problems(replica, each, json_mode)]


def row(number: int, **more: object) -> JsonObject:
    return {"id": number, "title": "a", "meta": None, **more}


LEGAL = {
    "insert": change("insert", relation=BY_ID, new=row(2)),
    "insert of part of a row": change("insert", relation=BY_ID, new={"id": 2}),
    "update in place": change("update", relation=BY_ID, key=None, new=row(1)),
    "update of the key": change("update", relation=BY_ID, key={"id": 1}, new=row(2)),
    "update by a full row": change("update", relation=FULL, key={"title": "a"}, new=row(7)),
    "delete": change("delete", relation=BY_ID, key={"id": 1, "title": "a"}),
    "insert without a key": change("insert", relation=KEYLESS, new=row(2)),
    "truncate": change("truncate", relations=[BY_ID]),
    "create-table": create("label", id={"pos": 1, "dataType": "int8"}),
    "rename-table": change("rename-table", old=ISSUE, new=GHOST),
    "update-table-metadata": change("update-table-metadata", table=ISSUE, old={"rowKey": {}}, new={"rowKey": {}}),
    "add-column": change("add-column", table=ISSUE, column=column("rank", "int4", dflt="7")),
    "update-column": change("update-column", table=ISSUE, old=column("title"), new=column("title", "varchar")),
    "rename column": change("update-column", table=ISSUE, old=column("title"), new=column("name")),
    "drop-column": change("drop-column", table=ISSUE, column="title"),
    "drop-table": change("drop-table", id=GHOST),
    "drop-index": change("drop-index", id=GHOST),
    "create-index": index("issue_title", "title", unique=False),
}


@pytest.mark.parametrize("name", LEGAL)
def test_a_change_that_can_be_applied_breaks_nothing(replica: CheckedReplica, name: str) -> None:
    assert broken(replica, LEGAL[name]) == []


BROKEN = [
    (change("update", relation={**GHOST, "rowKey": {"columns": ["id"]}}, key=None, new=row(1)), "unknown-table"),
    (change("truncate", relations=[BY_ID, {**GHOST, "rowKey": {"columns": []}}]), "unknown-table"),
    (change("rename-table", old=GHOST, new={"schema": "public", "name": "other"}), "unknown-table"),
    (change("update-table-metadata", table=GHOST, old={"rowKey": {}}, new={"rowKey": {}}), "unknown-table"),
    (change("add-column", table=GHOST, column=column("x")), "unknown-table"),
    (change("drop-column", table=GHOST, column="x"), "unknown-table"),
    (index("ghost_pkey", "id", table="ghost"), "unknown-table"),
    (change("insert", relation=BY_ID, new=row(2, ghost=1)), "unknown-column"),
    (change("update", relation=BY_ID, key={"id": 1, "ghost": 1}, new=row(1)), "unknown-column"),
    (change("delete", relation=BY_ID, key={"id": 1, "ghost": 1}), "unknown-column"),
    (change("update-column", table=ISSUE, old=column("ghost"), new=column("x")), "unknown-column"),
    (change("drop-column", table=ISSUE, column="ghost"), "unknown-column"),
    (index("issue_ghost", "ghost"), "unknown-column"),
    (change("insert", relation=BY_ID, new={"title": "a"}), "key-value"),
    (change("insert", relation=BY_ID, new=row(1, id=None)), "key-value"),
    (change("update", relation=BY_ID, key={"title": "a"}, new=row(1)), "key-value"),
    (change("delete", relation=BY_ID, key={}), "key-value"),
    (change("update", relation=BY_ID, key=None, new={"id": 1}), "full-row"),
    (change("update", relation=BY_ID, key=None, new=row(2)), "old-key"),
    (change("rename-table", old=ISSUE, new={"schema": "public", "name": "issue_pkey"}), "table-exists"),
    (create("issue"), "table-exists"),
    (change("add-column", table=ISSUE, column=column("title")), "column-exists"),
    (change("update-column", table=ISSUE, old=column("title"), new=column("meta")), "column-exists"),
    (change("drop-column", table=ISSUE, column="id"), "indexed-column"),
    (
        change("create-table", spec={"schema": "public", "name": "t", "columns": {}}, backfill={"id": {}}),
        "backfill",
    ),
    (change("backfill", relation=BY_ID, columns=["title"], watermark="01", rowValues=[]), "backfill"),
    (change("backfill-completed", relation=BY_ID, columns=["title"], watermark="01"), "backfill"),
    (change("add-column", table=ISSUE, column=column("late"), backfill={}), "backfill"),
    (create("sqlite_stat"), "reserved-name"),
    (change("rename-table", old=ISSUE, new={"schema": "_zero", "name": "issue"}), "reserved-name"),
    (create("t", _0_version={"pos": 1, "dataType": "text"}), "reserved-name"),
    (create("t", tags={"pos": 1, "dataType": "text", "elemPgTypeClass": "b"}), "data-type"),
    (create("t", tags={"pos": 1, "dataType": "text|NOT_NULL"}), "data-type"),
    (change("add-column", table=ISSUE, column=column("made", dflt="'abc'")), "default"),
    (index("issue", "title", unique=False), "index-name"),
    (change("update", relation=KEYLESS, key=None, new=row(1)), "no-row-key"),
    (change("insert", relation=BY_ID, new=row(2, title=5)), "value-type"),
    (change("insert", relation=BY_ID, new=row(2**63)), "value-type"),
    (change("delete", relation=BY_ID, key={"id": "1"}), "value-type"),
]


@pytest.mark.parametrize(("bad", "rule"), BROKEN)
def test_a_change_that_cannot_be_applied_breaks_its_rule(replica: CheckedReplica, bad: Change, rule: str) -> None:
    assert broken(replica, bad) == [rule]


def test_rows_before_a_unique_index_break_the_rule(replica: CheckedReplica) -> None:
    replica.apply_change(change("drop-index", id={"schema": "public", "name": "issue_pkey"}))
    replica.apply_change(index("issue_title", "title", unique=False))
    assert broken(replica, LEGAL["insert"], LEGAL["delete"]) == ["key-index", "key-index"]


def test_json_text_is_judged_by_the_mode_of_the_transaction(replica: CheckedReplica) -> None:
    insert = change("insert", relation=BY_ID, new=row(2, meta="plain"))
    assert broken(replica, insert, json_mode="p") == []
    assert broken(replica, insert, json_mode="s") == ["value-type"]


def test_nothing_is_held_against_a_table_that_may_exist() -> None:
    replica = CheckedReplica()
    for each in (*LEGAL.values(), index("issue_ghost", "ghost")):
        assert broken(replica, each) == []
