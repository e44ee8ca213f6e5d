from protocol.changes import Change
from protocol.rules.replica import CheckedReplica
from protocol.specs import JsonObject, Relation, RowKey
from tests.protocol.rules.test_changes import BY_ID, GHOST, ISSUE, change, column, create, index, row

RELATION = Relation(schema_name="public", name="issue", row_key=RowKey(columns=("id",)))


def replica_of(*changes: Change) -> CheckedReplica:
    replica = CheckedReplica(complete=True)
    for each in (
        create("issue", id={"pos": 1, "dataType": "int8", "notNull": True}, title={"pos": 2, "dataType": "text"}),
        index("issue_pkey", "id"),
        insert(1),
        *changes,
    ):
        replica.apply_change(each)
    return replica


def insert(number: int, relation: JsonObject = BY_ID) -> Change:
    return change("insert", relation=relation, new=row(number))


def numbers(replica: CheckedReplica) -> list[int]:
    return [number for number in range(10) if replica.has_row(RELATION, {"id": number})]


def test_row_keys_follow_inserts_updates_and_deletes() -> None:
    moved = change("update", relation=BY_ID, key={"id": 2}, new=row(5))
    stayed = change("update", relation=BY_ID, key=None, new=row(1))
    gone = change("delete", relation=BY_ID, key={"id": 3})
    absent = change("delete", relation=BY_ID, key={"id": 9})
    replica = replica_of(insert(1), insert(2), insert(3), moved, stayed, gone, absent)
    assert numbers(replica) == [1, 5]
    replica.apply_change(change("truncate", relations=[BY_ID, {**GHOST, "rowKey": {"columns": []}}]))
    assert numbers(replica) == []


def test_rows_are_not_told_apart_once_their_key_varies() -> None:
    for other in (["title"], [], ["id", "title"]):
        replica = replica_of(insert(2, {**ISSUE, "rowKey": {"columns": other}}))
        assert replica.has_row(RELATION, {"id": 1}) is None
    full: JsonObject = {**ISSUE, "rowKey": {"columns": ["id"], "type": "full"}}
    assert replica_of(insert(2, full)).has_row(RELATION, {"id": 1}) is None


def test_a_row_without_its_key_cannot_be_told() -> None:
    replica = replica_of(change("insert", relation=BY_ID, new={"title": "a"}))
    assert replica.has_row(RELATION, {"title": "a"}) is None
    assert numbers(replica) == [1]


def test_a_rollback_restores_rows_tables_and_indexes() -> None:
    replica = replica_of(insert(2))
    before = (numbers(replica), sorted(replica.tables), sorted(replica.indexes), replica.tables["issue"].columns)
    replica.begin()
    for each in (
        insert(3),
        change("delete", relation=BY_ID, key={"id": 1}),
        change("update-column", table=ISSUE, old=column("id"), new=column("key")),
        change("rename-table", old=ISSUE, new=GHOST),
        create("other"),
        change("drop-table", id=GHOST),
    ):
        replica.apply_change(each)
    assert sorted(replica.tables) == ["other"]
    replica.rollback()
    replica.rollback()
    assert before == (
        numbers(replica),
        sorted(replica.tables),
        sorted(replica.indexes),
        replica.tables["issue"].columns,
    )
    assert tuple(replica.indexes["issue_pkey"].columns) == ("id",)


def test_a_commit_cannot_be_taken_back() -> None:
    replica = replica_of()
    replica.begin()
    replica.apply_change(insert(2))
    replica.commit()
    replica.rollback()
    assert numbers(replica) == [1, 2]


def test_a_renamed_table_keeps_its_rows_and_indexes() -> None:
    replica = replica_of(change("rename-table", old=ISSUE, new={"schema": "old", "name": "issue"}))
    assert replica.has_key("old.issue")
    moved = Relation(schema_name="old", name="issue", row_key=RowKey(columns=("id",)))
    assert replica.has_row(moved, {"id": 1})


def test_a_dropped_table_takes_its_own_indexes_with_it() -> None:
    other = create("other", id={"pos": 1, "dataType": "int8"})
    replica = replica_of(other, index("other_pkey", "id", table="other"), change("drop-table", id=ISSUE))
    assert list(replica.indexes) == ["other_pkey"]


def test_a_renamed_key_column_is_still_the_key() -> None:
    spec = column("key", "int8", notNull=True)
    replica = replica_of(change("update-column", table=ISSUE, old=column("id"), new=spec))
    assert replica.has_key("issue")
    renamed = Relation(schema_name="public", name="issue", row_key=RowKey(columns=("key",)))
    assert replica.has_row(renamed, {"key": 1})


def test_a_column_of_a_table_that_never_had_rows_can_be_renamed() -> None:
    replica = replica_of(create("empty", a={"pos": 1, "dataType": "text"}))
    table = {"schema": "public", "name": "empty"}
    replica.apply_change(change("update-column", table=table, old=column("a"), new=column("b")))
    assert list(replica.tables["empty"].columns) == ["b"]
    assert replica.tables["empty"].key is None


def test_columns_come_and_go() -> None:
    added = change("add-column", table=ISSUE, column=column("rank"))
    dropped = change("drop-column", table=ISSUE, column="title")
    assert list(replica_of(added, dropped).tables["issue"].columns) == ["id", "rank"]


def test_only_a_unique_index_over_synced_not_null_columns_is_a_key() -> None:
    def has_key(*columns: str, unique: bool = True) -> bool:
        drop = change("drop-index", id={"schema": "public", "name": "issue_pkey"})
        raw = change("add-column", table=ISSUE, column=column("raw", "bytea", notNull=True))
        return replica_of(drop, raw, index("i", *columns, unique=unique)).has_key("issue")

    assert has_key("id")
    assert not has_key("id", unique=False)
    assert not has_key("id", "title")
    assert not has_key("raw")
    assert not has_key("ghost")


def test_changes_of_unknown_tables_are_passed_over() -> None:
    replica = replica_of(
        insert(1, {**GHOST, "rowKey": {"columns": ["id"]}}),
        change("update", relation={**GHOST, "rowKey": {"columns": ["id"]}}, key=None, new={"id": 1}),
        change("delete", relation={**GHOST, "rowKey": {"columns": ["id"]}}, key={"id": 1}),
        change("add-column", table=GHOST, column=column("x")),
        change("rename-table", old=GHOST, new={"schema": "public", "name": "other"}),
        change("update-table-metadata", table=GHOST, old={"rowKey": {}}, new={"rowKey": {}}),
    )
    assert list(replica.tables) == ["issue"]
