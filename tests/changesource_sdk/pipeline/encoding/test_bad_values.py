"""Rows that no consumer can hold: what is sent instead, and which dead letters there are."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from changesource_sdk.adapter import (
    AlterColumn,
    BadRow,
    Change,
    Column,
    CreateTable,
    Delete,
    DropTable,
    Insert,
    RenameTable,
    Table,
    Transaction,
    Truncate,
    Update,
)
from changesource_sdk.changelog.dead_letters import MOST_LETTERS, DeadLetter, RowName, Skip, apply_edit
from changesource_sdk.changelog.log import EncodedTransaction
from changesource_sdk.errors import AdapterError, ChangesourceError, InvalidChange
from changesource_sdk.pipeline.encoding import bad_values
from changesource_sdk.pipeline.encoding.bad_values import BadValueRules, BadValues
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.transactions import TransactionEncoder
from changesource_sdk.policies.bad_values import BadValuePolicy, policy_of
from protocol import changes as wire
from protocol.codec import decode_changes
from protocol.fold.rows import FoldedTables, key_of

TABLE = Table("issue", [Column("id", int), Column("n", int), Column("must", int, optional=False)])
LOG_OF = Table("event", [Column("text", str)], key=())
BAD = "five"


def row(key: object, n: object = 1, must: object = 1) -> dict[str, object]:
    return {"id": key, "n": n, "must": must}


class Stream:
    """A stream with a consumer that asserts that no update names a row it does not have."""

    def __init__(self, policy: BadValuePolicy = "dead-letter", skips: Sequence[Skip] = ()) -> None:
        self.rules = BadValueRules(policy, tuple(skips))
        self.schema = ConsumerSchema.of([TABLE, LOG_OF])
        self.letters: dict[RowName, DeadLetter] = {}
        self.replica = FoldedTables()
        self.sent: list[str] = []
        self.position = 0
        self.restart()

    def restart(self, skips: Sequence[Skip] | None = None) -> None:
        if skips is not None:
            self.rules = BadValueRules(self.rules.policy, tuple(skips))
        known = BadValues(self.rules, self.letters.values(), lambda: 5.0)
        self.encoder = TransactionEncoder(self.schema, lambda: Path("unused"), bad_values=known)

    def commit(self, *changes: Change) -> EncodedTransaction:
        encoded = self.encoder.encode(Transaction(self.position + 1, changes))
        self.position += 1
        self.schema = self.encoder.schema
        for edit in encoded.letters:
            apply_edit(self.letters, edit)
        assert isinstance(encoded.data, bytes)
        self.sent = []
        for change in decode_changes(encoded.data):
            if isinstance(change, wire.Update):
                known = self.replica.table(change.relation.replica_name)
                assert key_of(change.relation, change.key or change.new) in known
            self.sent.append(change.tag)
            self.replica.apply([change])
        return encoded

    @property
    def rows(self) -> dict[object, object]:
        return {key[0]: {**each} for key, each in self.replica.table("issue").items()}

    @property
    def left_out(self) -> set[str]:
        return {letter.key for letter in self.letters.values() if letter.outcome == "left out"}


def refused(stream: Stream, *changes: Change) -> ChangesourceError:
    with pytest.raises(ChangesourceError) as caught:
        stream.commit(*changes)
    return caught.value


def test_stop_names_table_column_row_fix_and_what_to_skip() -> None:
    error = refused(Stream("stop"), Insert("issue", row(7, BAD)))
    assert error.code == "value-does-not-fit"
    assert error.where == "table issue, column n (int8), row id=7"
    assert "changesource skip" in error.fix
    assert error.as_json() | {"position": "1", "table": "issue", "key": "[7]", "row": "id=7"} == error.as_json()


def test_stop_names_the_row_of_a_bad_key_as_well() -> None:
    error = refused(Stream("stop"), Delete("issue", {"id": BAD}))
    assert error.where == "table issue, column id (int8), row id='five'"


def test_a_bad_insert_is_left_out_and_listed() -> None:
    stream = Stream()
    stream.commit(Insert("issue", row(1)), Insert("issue", row(2, BAD)), Insert("issue", row(3)))
    assert set(stream.rows) == {1, 3}
    (letter,) = stream.letters.values()
    assert (letter.table, letter.key, letter.row, letter.column) == ("issue", "[2]", "id=2", "n")
    assert (letter.code, letter.position, letter.at_ms) == ("value-does-not-fit", "1", 5.0)
    assert "changesource skip" not in letter.fix


def test_no_consumer_keeps_the_older_version_of_a_row_whose_update_is_bad() -> None:
    stream = Stream()
    stream.commit(Insert("issue", row(1)))
    stream.commit(Update("issue", row(1, BAD)))
    assert stream.rows == {}
    assert stream.left_out == {"[1]"}


@pytest.mark.parametrize("new_key", [2, BAD])
def test_a_bad_update_of_the_key_removes_the_row_under_its_old_key(new_key: object) -> None:
    stream = Stream()
    stream.commit(Insert("issue", row(1)))
    stream.commit(Update("issue", row(new_key, BAD), {"id": 1}))
    assert stream.rows == {}
    (letter,) = stream.letters.values()
    assert letter.row == f"id={new_key!r}"


def test_a_good_update_brings_a_row_back_as_an_insert() -> None:
    stream = Stream()
    stream.commit(Insert("issue", row(1, BAD)))
    stream.commit(Update("issue", row(1, 5)))
    assert stream.sent == ["insert"]
    assert stream.rows == {1: row(1, 5)}
    assert stream.letters == {}


def test_a_good_update_brings_a_row_back_under_another_key_and_after_a_restart() -> None:
    stream = Stream()
    stream.commit(Insert("issue", row(1, BAD)))
    stream.restart()
    stream.commit(Update("issue", row(2, 5), {"id": 1}))
    assert (stream.sent, stream.rows, stream.letters) == (["insert"], {2: row(2, 5)}, {})


def test_an_update_of_some_columns_cannot_bring_a_row_back() -> None:
    stream = Stream()
    stream.commit(Insert("issue", row(1, BAD)))
    stream.commit(Update("issue", {"id": 1, "must": 2}))
    assert (stream.sent, stream.left_out) == ([], {"[1]"})
    stream.commit(Update("issue", {"id": 9, "must": 2}, {"id": 1}))
    assert (stream.sent, stream.left_out) == ([], {"[9]"})


def test_the_deletion_of_a_row_that_was_left_out_is_not_sent() -> None:
    stream = Stream()
    stream.commit(Insert("issue", row(1, BAD)))
    encoded = stream.commit(Delete("issue", {"id": 1}))
    assert (encoded.changes, stream.letters) == (0, {})


@pytest.mark.parametrize(
    "change", [Truncate(["issue"]), DropTable("issue"), Insert("issue", row(1)), Delete("issue", {"id": 1})]
)
def test_a_letter_is_gone_with_its_row(change: Change) -> None:
    stream = Stream()
    stream.commit(Insert("issue", row(1, BAD)))
    stream.commit(change)
    assert stream.letters == {}


def test_letters_follow_a_renamed_table_and_a_renamed_key() -> None:
    stream = Stream()
    stream.commit(Insert("issue", row(1, BAD)))
    stream.commit(RenameTable("issue", "ticket"), AlterColumn("ticket", "id", Column("number", int)))
    stream.restart()
    stream.commit(Update("ticket", {"number": 1, "n": 4, "must": 4}))
    assert (stream.sent, stream.letters) == (["insert"], {})


def test_a_dropped_and_new_table_of_the_same_name_has_no_letters() -> None:
    stream = Stream()
    stream.commit(Insert("issue", row(1, BAD)))
    stream.commit(DropTable("issue"), CreateTable(TABLE), Insert("issue", row(1)))
    assert (stream.letters, stream.rows) == ({}, {1: row(1)})


def test_a_transaction_that_fails_leaves_letters_as_they_were() -> None:
    stream = Stream()
    stream.commit(Insert("issue", row(1, BAD)))
    before = dict(stream.letters)
    refused(stream, Delete("issue", {"id": 1}), Insert("issue", row(2, BAD)), Insert("nothing", {}))
    stream.commit(Update("issue", row(1, 2)))
    assert stream.sent == ["insert"]
    assert before
    assert stream.letters == {}


def test_errors_that_are_about_no_single_row_stop_under_every_policy() -> None:
    for policy in ("dead-letter", "null"):
        stream = Stream(policy)
        assert refused(stream, Insert("issue", {**row(1), "other": 1})).code == "unknown-column"
        assert refused(stream, Insert("other", row(1))).code == "unknown-table"
        assert refused(stream, DropTable("zero_0.clients")).code == "system-table-changed"


def test_rows_of_a_table_without_key_are_listed_one_by_one_until_it_is_truncated() -> None:
    stream = Stream()
    stream.commit(Insert("event", {"text": 1}), Insert("event", {"text": 2}), Insert("event", {"text": "a"}))
    assert len(stream.letters) == 2
    assert stream.sent == ["insert"]
    stream.commit(Truncate(["event"]))
    assert stream.letters == {}


def test_a_row_that_the_adapter_cannot_read_is_handled_like_a_bad_value() -> None:
    bad = BadRow("issue", {"id": 1}, None, AdapterError("poison-record", "no JSON", "topic[0] offset 3", "fix"))
    assert refused(Stream("stop"), bad).code == "poison-record"
    stream = Stream()
    stream.commit(Insert("issue", row(1)))
    stream.commit(bad)
    assert stream.rows == {}
    assert next(iter(stream.letters.values())).where == "topic[0] offset 3"


def test_more_letters_than_may_be_stop_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad_values, "MOST_LETTERS", 3)
    stream = Stream()
    stream.commit(*(Insert("issue", row(key, BAD)) for key in range(3)))
    assert refused(stream, Insert("issue", row(9, BAD))).code == "too-many-dead-letters"
    stream.commit(Update("issue", row(2, BAD)), Update("issue", row(1, 1)), Insert("issue", row(9, BAD)))
    assert stream.left_out == {"[0]", "[2]", "[9]"}
    assert MOST_LETTERS == 10_000


# --- null ---


def test_null_replaces_a_bad_value_of_an_optional_column_and_lists_it() -> None:
    stream = Stream("null")
    stream.commit(Insert("issue", row(1, BAD)))
    assert stream.rows == {1: row(1, None)}
    (letter,) = stream.letters.values()
    assert (letter.outcome, letter.column) == ("null", "n")
    stream.commit(Update("issue", {"id": 1, "must": 3}))
    assert stream.letters
    stream.commit(Update("issue", row(1, 5)))
    assert (stream.sent, stream.letters) == (["update"], {})


@pytest.mark.parametrize(
    ("bad", "reason"), [(row(1, must=BAD), "it is not optional"), (row(BAD), "it is part of the key")]
)
def test_where_null_cannot_be_the_row_is_left_out_with_the_reason(bad: dict[str, object], reason: str) -> None:
    stream = Stream("null")
    stream.commit(Insert("issue", bad))
    (letter,) = stream.letters.values()
    assert letter.outcome == "left out"
    assert letter.message.endswith(f"null cannot replace it: {reason}")
    assert stream.rows == {}


def test_null_gives_way_to_leaving_out_when_another_column_of_the_row_cannot_be_null() -> None:
    stream = Stream("null")
    stream.commit(Insert("issue", row(1)))
    stream.commit(Update("issue", row(1, BAD, BAD)))
    assert (stream.rows, stream.left_out) == ({}, {"[1]"})


def test_a_deleted_row_with_a_null_is_deleted_and_off_the_list() -> None:
    stream = Stream("null")
    stream.commit(Insert("issue", row(1, BAD)))
    stream.commit(Delete("issue", {"id": 1}))
    assert (stream.sent, stream.rows, stream.letters) == (["delete"], {}, {})


def test_nulls_beyond_the_list_are_still_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad_values, "MOST_NULLED", 2)
    stream = Stream("null")
    stream.commit(*(Insert("issue", row(key, BAD)) for key in range(5)))
    assert len(stream.rows) == 5
    assert len(stream.letters) == 2


# --- skip ---


def a_skip(position: str, table: str = "", key: str = "") -> Skip:
    return Skip(position, table, key, "", "ops@host", 1.0, "will be corrected")


def test_one_row_is_skipped_and_the_rest_of_its_transaction_passes() -> None:
    stream = Stream("stop")
    changes = (Insert("issue", row(1)), Insert("issue", row(2, BAD)), Insert("issue", row(3)))
    named = refused(stream, *changes).refused
    assert named is not None
    stream.restart([a_skip(named.position, named.table, named.key)])
    encoded = stream.commit(*changes)
    assert set(stream.rows) == {1, 3}
    assert [(skip.key, skip.changes) for skip in encoded.skips] == [("[2]", 1)]
    (letter,) = stream.letters.values()
    assert (letter.by, letter.reason, letter.code) == ("ops@host", "will be corrected", "value-does-not-fit")


def test_a_row_is_skipped_whatever_is_wrong_with_it_and_only_in_its_transaction() -> None:
    stream = Stream("stop", [a_skip("1", "issue", "[1]")])
    stream.commit(Insert("issue", {**row(1), "other": 1}))
    assert stream.left_out == {"[1]"}
    assert refused(stream, Insert("issue", row(1, BAD))).code == "value-does-not-fit"


def test_a_skipped_transaction_removes_its_rows_and_keeps_what_later_ones_need() -> None:
    stream = Stream("stop")
    stream.commit(Insert("issue", row(1)), Insert("issue", row(2)), Insert("issue", row(3)))
    stream.restart([a_skip("2")])
    encoded = stream.commit(
        Update("issue", row(1, 9)),
        Delete("issue", {"id": 2}),
        Update("issue", row(3, BAD)),
        CreateTable(Table("note", [Column("id", int)])),
        Insert("issue", row(4)),
    )
    assert stream.rows == {}
    assert stream.left_out == {"[1]", "[3]", "[4]"}
    assert encoded.skips[0].changes == 5
    stream.commit(Insert("note", {"id": 1}), Update("issue", row(1, 10)))
    assert stream.rows == {1: row(1, 10)}


def test_a_schema_change_that_cannot_be_made_is_passed_over_in_a_skipped_transaction() -> None:
    stream = Stream("stop", [a_skip("1")])
    encoded = stream.commit(CreateTable(TABLE), RenameTable("nowhere", "somewhere"))
    assert (encoded.changes, encoded.skips[0].changes) == (0, 2)


# --- all together ---


def random_changes(chance: random.Random, upstream: dict[int, dict[str, object]]) -> Iterable[Change]:
    for _ in range(chance.randint(1, 6)):
        key = chance.randint(0, 6)
        fresh = row(key, chance.choice([1, 2, BAD, None]), chance.choice([1, 2, 3, BAD]))
        match chance.randint(0, 5):
            case 0 if upstream:
                gone = chance.choice(sorted(upstream))
                del upstream[gone]
                yield Delete("issue", {"id": gone})
            case 1 if upstream and key not in upstream:
                moved = chance.choice(sorted(upstream))
                del upstream[moved]
                upstream[key] = fresh
                yield Update("issue", fresh, {"id": moved})
            case 2 if chance.random() < 0.1:
                upstream.clear()
                yield Truncate(["issue"])
            case _:
                yield Update("issue", fresh) if key in upstream else Insert("issue", fresh)
                upstream[key] = fresh


def expected(policy: BadValuePolicy, upstream: dict[int, dict[str, object]]) -> tuple[dict[object, object], set[str]]:
    nullable = {
        key: {**each, "n": None} if policy == "null" and each["n"] == BAD else each for key, each in upstream.items()
    }
    good = {key: each for key, each in nullable.items() if BAD not in each.values()}
    return good, {f"[{key}]" for key in nullable.keys() - good.keys()}  # type: ignore[return-value]


@pytest.mark.parametrize("policy", ["dead-letter", "null"])
@pytest.mark.parametrize("seed", range(20))
def test_consumers_have_exactly_the_good_rows_and_the_list_the_bad_ones(policy: BadValuePolicy, seed: int) -> None:
    chance = random.Random(seed)
    stream, upstream = Stream(policy), dict[int, dict[str, object]]()
    for _ in range(60):
        stream.commit(*list(random_changes(chance, upstream)))
        assert (stream.rows, stream.left_out) == expected(policy, upstream)
        if chance.random() < 0.2:
            stream.restart()


def test_the_setting_counts_more_than_the_adapter() -> None:
    class Lenient:
        on_bad_value = "dead-letter"

    assert policy_of("", Lenient()) == "dead-letter"
    assert policy_of("stop", Lenient()) == "stop"
    assert policy_of("", object()) == "stop"


def test_the_column_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(InvalidChange("value-does-not-fit", "m", "w", "f", "n")))
    assert (error.column, error.fix) == ("n", "f")
