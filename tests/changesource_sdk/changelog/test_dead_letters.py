"""Dead letters and skips in every log, with the transactions that add and remove them."""

from dataclasses import replace

from changesource_sdk.changelog.dead_letters import (
    LONGEST_KEY,
    MOST_SKIPS,
    DeadLetter,
    LetterEdit,
    RowName,
    Skip,
    apply_edit,
    key_text,
    letter_of,
)
from changesource_sdk.changelog.log import EncodedTransaction
from changesource_sdk.positions import Position
from tests.changesource_sdk.changelog.log_fixtures import begin_generation, transaction
from tests.changesource_sdk.changelog.logs_under_test import LogUnderTest

SKIP = Skip("7", "issue", '["a"]', "id='a'", "ops@host", 5.0, "corrected upstream")


def letter(key: str, table: str = "issue", outcome: str = "left out") -> DeadLetter:
    said = ("n", "value-does-not-fit", "a value of type str where a 64-bit integer is needed", "table issue", "fix it")
    return DeadLetter(table, key, f"id={key}", outcome, *said, "1", 2.0)  # type: ignore[arg-type]


def put(each: DeadLetter) -> LetterEdit:
    return LetterEdit(each.table, each.key, each)


def carrying(position: Position, *edits: LetterEdit, skips: tuple[Skip, ...] = ()) -> EncodedTransaction:
    return replace(transaction(position), letters=edits, skips=skips)


def test_letters_come_and_go_with_their_transactions(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    reader = log.reader()
    writer.append([carrying(1, put(letter("a")), put(letter("b"))), carrying(2, put(letter("c", outcome="null")))])
    kept = reader.kept_aside()
    assert {each.key for each in kept.letters} == {"a", "b", "c"}
    assert kept.counts == {("issue", "left out"): 2, ("issue", "null"): 1}
    writer.append([carrying(3, LetterEdit("issue", "a"))])
    assert {each.key for each in reader.kept_aside().letters} == {"b", "c"}


def test_a_transaction_given_twice_adds_its_letter_once_and_does_not_bring_it_back(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    writer.append([carrying("p1", put(letter("a")))])
    writer.append([carrying("p2", LetterEdit("issue", "a"))])
    writer.append([carrying("p1", put(letter("a")))])
    assert log.reader().kept_aside().letters == []


def test_letters_follow_their_table(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    writer.append([carrying(1, put(letter("a")), put(letter("b", "note")))])
    writer.append([carrying(2, LetterEdit("issue", renamed="ticket"))])
    assert {each.name for each in log.reader().kept_aside().letters} == {RowName("ticket", "a"), RowName("note", "b")}
    writer.append([carrying(3, LetterEdit("ticket"))])
    assert [each.table for each in log.reader().kept_aside().letters] == ["note"]


def test_the_newest_letters_come_first_and_the_list_can_be_bounded(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    writer.append([carrying(number, put(letter(str(number)))) for number in range(1, 6)])
    kept = log.reader().kept_aside(2)
    assert [each.key for each in kept.letters] == ["5", "4"]
    assert kept.counts == {("issue", "left out"): 5}


def test_a_new_generation_replaces_all_letters_and_keeps_skips(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    (mark,) = writer.append([carrying(1, put(letter("a")), skips=(SKIP,))])
    begin_generation(writer, log.state, 9)
    kept = log.reader().kept_aside()
    assert kept.letters == []
    assert kept.skips == [replace(SKIP, watermark=mark)]


def test_the_oldest_skips_are_forgotten(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    many = tuple(replace(SKIP, reason=str(number)) for number in range(MOST_SKIPS + 3))
    writer.append([carrying(1, skips=many)])
    kept = log.reader().kept_aside().skips
    assert len(kept) == MOST_SKIPS
    assert kept[0].reason == str(MOST_SKIPS + 2)


def test_letters_survive_another_writer(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    writer.append([carrying(1, put(letter("a")))])
    writer.close()
    assert [each.key for each in log.writer()._log.kept_aside().letters] == ["a"]


def test_a_transaction_without_changes_moves_the_position_and_nothing_else(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    (mark,) = writer.append([transaction("p1")])
    empty = EncodedTransaction("p2", None, None, b"", 0)
    assert writer.append([empty]) == [mark]
    state = log.reader().state()
    assert (state.head, state.position, state.transactions) == (mark, "p2", 1)
    (next_mark,) = writer.append([transaction("p3")])
    assert next_mark > mark
    assert [stored.watermark for stored in log.reader().read_after("00", 1 << 20)] == [mark, next_mark]


def test_edits_in_memory_are_those_of_the_log() -> None:
    letters: dict[RowName, DeadLetter] = {}
    for edit in (put(letter("a")), put(letter("b")), LetterEdit("issue", "a")):
        apply_edit(letters, edit)
    assert set(letters) == {RowName("issue", "b")}
    apply_edit(letters, LetterEdit("issue", renamed="ticket"))
    assert set(letters) == {RowName("ticket", "b")}
    apply_edit(letters, LetterEdit("ticket"))
    assert letters == {}


def test_a_letter_reads_back_without_fields_it_does_not_know() -> None:
    text = letter("a").to_text().replace('"table"', '"later": 1, "table"', 1)
    assert letter_of(text) == letter("a")


def test_long_keys_are_represented_by_a_digest_of_bounded_length() -> None:
    one, other = key_text(["x" * 10_000]), key_text(["x" * 9_999 + "y"])
    assert one != other
    assert len(one) <= LONGEST_KEY
    assert key_text([1, "a"]) == '[1,"a"]'


def test_a_log_of_an_earlier_release_gets_its_letters_from_the_next_writer(log: LogUnderTest) -> None:
    log.writer_with_generation().close()
    log.drop_tables("dead_letters", "skips")
    assert log.reader().kept_aside().letters == []
    log.writer().append([carrying(1, put(letter("a")))])
    assert [each.key for each in log.reader().kept_aside().letters] == ["a"]
