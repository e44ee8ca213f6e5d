from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapters.postgres.connection import Connection
from adapters.postgres.copy_text import CopyReader, unescaped
from adapters.postgres.snapshot import copy_batches


def test_rows_of_plain_values() -> None:
    reader = CopyReader(("a", "b"), (int, str))
    assert list(reader.rows([b"1\tx\n2\ty\n", b"3\tz\n"])) == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "y"},
        {"a": 3, "b": "z"},
    ]


def test_null_is_not_the_text_that_stands_for_it() -> None:
    reader = CopyReader(("a", "b"), (int, str))
    assert list(reader.rows([b"\\N\t\\\\N\n\\N\tN\n"])) == [{"a": None, "b": "\\N"}, {"a": None, "b": "N"}]


def test_a_table_of_one_column_and_empty_text() -> None:
    assert list(CopyReader(("a",), (str,)).rows([b"\n\nx\n"])) == [{"a": ""}, {"a": ""}, {"a": "x"}]


def test_every_escape() -> None:
    assert unescaped(r"\b\f\n\r\t\v\\\.\101\x41") == "\b\f\n\r\t\v\\.AA"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1, max_size=5))
def test_what_is_escaped_comes_back(values: list[str]) -> None:
    escapes = str.maketrans(
        {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
    )
    batch = "".join(f"{n}\t{value.translate(escapes)}\n" for n, value in enumerate(values)).encode()
    assert [row["b"] for row in CopyReader(("a", "b"), (int, str)).rows([batch])] == values


def test_what_postgres_escapes_comes_back(db: Connection) -> None:
    everything = "".join(map(chr, range(1, 0x180))) + "\u2028\U0001f600"
    db.execute("CREATE TABLE t (a text)")
    db.execute("INSERT INTO t VALUES (%s), (NULL), ('')", [everything])
    batches = copy_batches(db, "COPY t TO STDOUT", size=1)
    assert [row["a"] for row in CopyReader(("a",), (str,)).rows(batches)] == [everything, None, ""]
