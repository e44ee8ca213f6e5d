"""Transactions, from the author's changes to frames a consumer can apply."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    Change,
    CreateIndex,
    CreateTable,
    Delete,
    DropColumn,
    DropIndex,
    DropTable,
    Insert,
    RenameTable,
    Transaction,
    Truncate,
    Update,
)
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.errors import InvalidChange, ResyncRequired
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.transactions import TransactionEncoder
from changesource_sdk.schema import Column, Index, Table
from tests.changesource_sdk.pipeline.stream_fixtures import TABLES, Stream

ROW = {"id": 1, "title": "a", "n": 2, "data": None}


def test_rows_become_the_frames_a_consumer_reads() -> None:
    stream = Stream()
    relation = b'"relation":{"schema":"public","name":"issue","rowKey":{"columns":["id"]}}'
    assert stream.commit(
        Insert("issue", ROW),
        Insert("public.issue", {"id": 2}),
        Update("issue", {"id": 3, "title": "b"}),
        Update("issue", {**ROW, "id": 4}, old_key={"id": 1, "title": "ignored"}),
        Delete("issue", {"id": 2, "title": "ignored"}),
        Truncate(["issue"]),
        Truncate([]),
    ) == [
        b'["data",{"tag":"insert",%s,"new":{"id":1,"title":"a","n":2,"data":null}}]' % relation,
        b'["data",{"tag":"insert",%s,"new":{"id":2,"title":null,"n":null,"data":null}}]' % relation,
        b'["data",{"tag":"update",%s,"key":null,"new":{"id":3,"title":"b"}}]' % relation,
        b'["data",{"tag":"update",%s,"key":{"id":1},"new":{"id":4,"title":"a","n":2,"data":null}}]' % relation,
        b'["data",{"tag":"delete",%s,"key":{"id":2}}]' % relation,
        b'["data",{"tag":"truncate","relations":[{"schema":"public","name":"issue","rowKey":{"columns":["id"]}}]}]',
    ]


def test_a_stream_with_every_change_breaks_no_rule() -> None:
    stream = Stream()
    stream.commit(Insert("issue", ROW), Insert("team.member", {"team": "x", "user": "y", "since": 0}), time_ms=1.5)
    stream.commit(AddColumn("issue", Column("flag", bool, default=True)), Update("issue", {**ROW, "flag": False}))
    stream.commit(AlterColumn("issue", "title", Column("name", str)), Insert("issue", {"id": 2, "name": "x"}))
    stream.commit(AlterColumn("issue", "id", Column("key", "int4")), Delete("issue", {"key": 2}))
    stream.commit(DropIndex("issue_n"), DropColumn("issue", "n"))
    stream.commit(CreateIndex(Index("issue_name", [("name", "DESC")], table="issue")))
    stream.commit(RenameTable("issue", "archive.issue"), Insert("archive.issue", {"key": 5}))
    stream.commit(CreateTable(Table("issue", [Column("id", str)])), Insert("issue", {"id": "1"}))
    stream.commit(DropTable("archive.issue"), DropTable("absent"), DropIndex("absent"), Truncate(["issue"]))
    stream.commit()
    assert stream.violations() == []


def test_the_schema_after_is_given_only_when_it_changed() -> None:
    encoder = Stream().encoder
    assert encoder.encode(Transaction(1, [Insert("issue", ROW)])).schema_after is None
    changed = encoder.encode(Transaction(2, [DropTable("team.member")])).schema_after
    assert changed is not None
    assert list(ConsumerSchema.from_json(changed).tables) == ["issue"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (Insert("isue", ROW), "unknown-table"),
        (Insert("issue", {"id": 1, "titel": "x"}), "unknown-column"),
        (Insert("issue", {**ROW, "extra": 1}), "unknown-column"),
        (Insert("issue", {"id": 1, "title": "x", "n": 1, "date": 5}), "unknown-column"),
        (Insert("issue", {"title": "x"}), "value-does-not-fit"),
        (Insert("issue", {**ROW, "id": None}), "value-does-not-fit"),
        (Insert("issue", {**ROW, "n": "5"}), "value-does-not-fit"),
        (Insert("issue", {**ROW, "n": 2**63}), "value-does-not-fit"),
        (Insert("issue", {**ROW, "title": "\ud800"}), "value-does-not-fit"),
        (Update("issue", {"title": "x"}), "key-missing"),
        (Update("issue", ROW, old_key={"title": "x"}), "key-missing"),
        (Update("issue", ROW, old_key={"id": None}), "value-does-not-fit"),
        (Delete("issue", {}), "key-missing"),
        (Delete("nowhere", {"id": 1}), "unknown-table"),
        (Truncate(["issue", "nowhere"]), "unknown-table"),
        (CreateTable(Table("Issue", [Column("id", int)])), "name-taken"),
        (CreateTable(Table("issue_N", [Column("id", int)])), "name-taken"),
        (CreateTable(Table("x", [Column("id", int), Column("ID", int)])), "name-taken"),
        (CreateTable(Table("x", [Column("id", int)], key=("key",))), "unknown-column"),
        (CreateTable(Table("x", [], key=())), "no-columns"),
        (CreateTable(Table("sqlite_x", [Column("id", int)])), "reserved-name"),
        (CreateTable(Table("_zero.x", [Column("id", int)])), "reserved-name"),
        (CreateTable(Table("x", [Column("id", int), Column("_0_version", str)])), "reserved-name"),
        (CreateTable(Table("x", [Column("id", "a|b")])), "bad-type"),
        (CreateTable(Table("x", [Column("id", int), Column("a", "int[][]")])), "bad-type"),
        (CreateTable(Table("x", [Column("id", int)], indexes=[Index("issue_n", ["id"])])), "name-taken"),
        (CreateTable(Table("x", [Column("id", int)], indexes=[Index("x_y", ["y"])])), "unknown-column"),
        (CreateTable(Table("x", [Column("id", int)], indexes=[Index("x_y", [])])), "bad-index"),
        (RenameTable("issue", "ISSUE_N"), "name-taken"),
        (RenameTable("nowhere", "x"), "unknown-table"),
        (AddColumn("issue", Column("Title", str)), "name-taken"),
        (AddColumn("issue", Column("t", "timestamptz", default_sql="now()")), "default-not-understood"),
        (AddColumn("issue", Column("t", "int8", default="x")), "default-does-not-fit"),
        (AddColumn("issue", Column("t", "text", default="two\nlines")), "default-not-understood"),
        (AlterColumn("issue", "nowhere", Column("x", str)), "unknown-column"),
        (AlterColumn("issue", "title", Column("n", str)), "name-taken"),
        (DropColumn("issue", "n"), "column-in-use"),
        (DropColumn("issue", "id"), "column-in-use"),
        (CreateIndex(Index("issue_pkey", ["n"], table="issue")), "name-taken"),
        (CreateIndex(Index("x", ["n"], table="nowhere")), "unknown-table"),
        (DropIndex("issue_pkey"), "key-index"),
    ],
)
def test_what_a_consumer_could_not_apply_is_refused(change: Change, code: str) -> None:
    stream = Stream()
    with pytest.raises(InvalidChange) as refused:
        stream.commit(change)
    assert refused.value.code == code
    assert refused.value.fix
    stream.commit(Insert("issue", ROW))
    assert stream.violations() == []


def test_an_error_names_table_column_row_and_kind_but_not_the_value() -> None:
    bad = {**ROW, "n": "secret"}
    for change in (
        Insert("issue", bad),
        Update("issue", {"id": 1, "n": "secret"}),
        Insert("issue", {"id": 1, "n": "secret"}),
    ):
        with pytest.raises(InvalidChange) as refused:
            Stream().commit(change)
        assert refused.value.where == "table issue, column n (int8), row id=1"
        assert "type str" in refused.value.message
        assert "secret" not in str(refused.value)


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(InvalidChange, match="did you mean 'issue'"):
        Stream().commit(Insert("isue", ROW))
    with pytest.raises(InvalidChange, match="did you mean 'title'"):
        Stream().commit(Insert("issue", {"id": 1, "titel": "x"}))


def test_the_last_column_cannot_be_dropped() -> None:
    stream = Stream([Table("line", [Column("text", str)], key=())])
    with pytest.raises(InvalidChange, match="no-columns"):
        stream.commit(DropColumn("line", "text"))


def test_a_table_without_key_takes_inserts_and_truncate_only() -> None:
    stream = Stream([Table("line", [Column("text", str)], key=())])
    stream.commit(Insert("line", {"text": "a"}), Truncate(["line"]))
    for change in (Update("line", {"text": "b"}), Delete("line", {})):
        with pytest.raises(InvalidChange, match="no-key"):
            stream.commit(change)


@pytest.mark.parametrize(
    "change",
    [
        CreateTable(Table("zero_0.clients", [Column("id", int)])),
        CreateTable(Table("app.permissions", [Column("id", int)])),
        DropTable("zero_12.mutations"),
        RenameTable("issue", "zero.permissions"),
    ],
)
def test_a_system_table_cannot_appear_in_the_stream(change: Change) -> None:
    with pytest.raises(ResyncRequired):
        Stream().commit(change)


def test_an_own_watermark_must_be_one() -> None:
    with pytest.raises(InvalidChange, match="bad-watermark"):
        Stream().encoder.encode(Transaction(1, [], watermark="0/16B3748"))


def test_a_failed_transaction_leaves_the_schema_as_it_was() -> None:
    stream = Stream()
    before = stream.encoder.schema
    with pytest.raises(InvalidChange):
        stream.commit(DropTable("team.member"), AddColumn("issue", Column("x", int)), Insert("nowhere", {}))
    assert stream.encoder.schema is before
    stream.commit(AddColumn("issue", Column("x", int)), Insert("issue", {**ROW, "x": 1}))
    assert stream.violations() == []


def test_a_large_transaction_goes_to_a_file_and_reads_the_same(tmp_path: Path) -> None:
    changes = [Insert("issue", {**ROW, "id": number}) for number in range(500)]
    small, large = Stream(), Stream(folder=tmp_path, spill_bytes=5000)
    assert large.commit(*changes) == small.commit(*changes)
    assert large.violations() == []
    assert isinstance(large.encoder.encode(Transaction(9, changes)).data, BlockFile)


def test_a_large_transaction_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> Iterator[Change]:
        for number in range(500):
            yield Insert("issue", {**ROW, "id": number})
        raise ConnectionError("lost")

    encoder = TransactionEncoder(ConsumerSchema.of(TABLES), lambda: tmp_path / "1.frames", 1000)
    with pytest.raises(ConnectionError):
        encoder.encode(Transaction(1, failing()))
    assert list(tmp_path.iterdir()) == []


def test_a_row_beyond_the_consumer_s_limit_is_refused() -> None:
    with pytest.raises(InvalidChange, match="row-too-large"):
        Stream().commit(Insert("issue", {**ROW, "title": "x" * (100 * 1024 * 1024)}))


def test_an_adapter_may_explain_what_was_refused_but_not_what_calls_for_a_new_snapshot() -> None:
    given: list[Change] = []

    def changes(*wanted: Change) -> Iterator[Change]:
        for change in wanted:
            given.append(change)
            yield change

    def explain(error: InvalidChange) -> InvalidChange:
        return InvalidChange("poison", f"change {len(given)}: {error.message}", "line 7", "mend it")

    stream = Stream()
    wrong = Insert("issue", {"id": "x"})
    with pytest.raises(InvalidChange, match="change 2: a value of type str"):
        stream.encoder.encode(Transaction(1, changes(Insert("issue", ROW), wrong, wrong), explain=explain))
    with pytest.raises(ResyncRequired):
        stream.encoder.encode(Transaction(1, changes(DropTable("zero_12.mutations")), explain=explain))
