"""Dead letters: row versions that consumers did not get, or got without a value, and what an operator skipped. Pure.

The log keeps them with its transactions: a letter is added in the same write as the transaction that set the row
aside, and removed in the write of the one that brought a later version of the row. A snapshot replaces all of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal, NamedTuple

MOST_LETTERS = 10_000
"""Rows that may be left out at a time. Beyond it a declaration is wrong, not a value: the stream stops."""
MOST_NULLED = 1_000
"""Letters about values that were replaced by null; later ones are logged only, since nothing depends on them."""
MOST_SKIPS = 1_000
"""Skips that a log remembers, the newest."""
LONGEST_KEY = 512
"""Characters of a row's key in a letter; a longer one is represented by its digest."""

ANY_TRANSACTION = "*"
"""Instead of a position: whichever transaction comes next. Not the text of any position, since those are JSON."""

Outcome = Literal["left out", "null"]


class RowName(NamedTuple):
    """A row by its table and the text of its key (`key_text`)."""

    table: str
    key: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A row version that consumers did not get as it is upstream.

    With the outcome `left out` consumers do not have the row; with `null` they have it without the value of `column`.
    `row` shows the key to people. `code`, `message`, `where` and `fix` are those of the error. `position` is the text
    of the position of the transaction or snapshot. `by` and `reason` are set where an operator skipped it.
    """

    table: str
    key: str
    row: str
    outcome: Outcome
    column: str
    code: str
    message: str
    where: str
    fix: str
    position: str
    at_ms: float
    by: str = ""
    reason: str = ""
    source: str = ""

    @property
    def name(self) -> RowName:
        """The row it is about."""
        return RowName(self.table, self.key)

    def to_text(self) -> str:
        """Text that `letter_of` reads back."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Skip:
    """What an operator decided to leave out: one row, or a whole transaction if `table` is empty.

    `position` is the text of the transaction's position, "" for a row of a snapshot. `by`, `at_ms` (epoch) and `reason`
    say who, when and why. `watermark` is where the log was when it was carried out, `changes` how many changes it left
    out; both are empty in a request. `after` is the text of the last position that the log had when a request was made:
    until it has another, a row is left out in whichever transaction comes next. Some adapters give a transaction that
    is tried again another position.
    """

    position: str
    table: str
    key: str
    row: str
    by: str
    at_ms: float
    reason: str
    watermark: str = ""
    changes: int = 0
    source: str = ""
    after: str = ""

    @property
    def is_transaction(self) -> bool:
        """Whether it names a whole transaction."""
        return not self.table

    def matches(self, position: str, name: RowName | None = None) -> bool:
        """Whether it names this transaction, or this row of it."""
        if self.position not in (position, ANY_TRANSACTION):
            return False
        return self.is_transaction if name is None else (self.table, self.key) == name

    def in_any_transaction(self) -> Skip:
        """The same row, in whichever transaction comes next."""
        return replace(self, position=ANY_TRANSACTION)

    def to_text(self) -> str:
        """Text that `skip_of` reads back."""
        return json.dumps(asdict(self), ensure_ascii=False)


class LetterEdit(NamedTuple):
    """One change of the list of letters: put `letter`, or remove `key`; with no key, remove all letters of `table`, or
    move them to the table `renamed`.
    """

    table: str
    key: str = ""
    letter: DeadLetter | None = None
    renamed: str = ""


class KeptAside(NamedTuple):
    """What a log keeps about rows that consumers did not get: letters and skips, the newest first, and the number of
    all letters by table and outcome.
    """

    letters: list[DeadLetter]
    counts: dict[tuple[str, str], int]
    skips: list[Skip]


def letter_of(text: str) -> DeadLetter:
    """The letter that `DeadLetter.to_text` wrote; fields of later releases are ignored."""
    return DeadLetter(**_known_fields(DeadLetter, text))  # type: ignore[arg-type]


def skip_of(text: str) -> Skip:
    """The skip that `Skip.to_text` wrote; fields of later releases are ignored."""
    return Skip(**_known_fields(Skip, text))  # type: ignore[arg-type]


def kept_aside(
    letters: Iterable[tuple[str, str, str]], counts: Iterable[tuple[str, str, int]], skips: Iterable[tuple[str]]
) -> KeptAside:
    """What the rows of a backend mean: source, table and text of a letter; table, outcome and count; text of a skip."""
    return KeptAside(
        [replace(letter_of(text), source=source, table=table) for source, table, text in letters],
        {(table, outcome): count for table, outcome, count in counts},
        [skip_of(text) for (text,) in skips],
    )


def apply_edit(letters: dict[RowName, DeadLetter], edit: LetterEdit) -> None:
    """Change the letters in memory as a backend changes its table."""
    if edit.letter is not None:
        letters[edit.letter.name] = edit.letter
    elif edit.key:
        letters.pop(RowName(edit.table, edit.key), None)
    else:
        for name in [name for name in letters if name.table == edit.table]:
            letter = letters.pop(name)
            if edit.renamed:
                letter = replace(letter, table=edit.renamed)
                letters[letter.name] = letter


def key_text(values: Iterable[object]) -> str:
    """The text that identifies a row by the values of its key; values that JSON does not have are written as text."""
    text = json.dumps(list(values), ensure_ascii=False, default=repr, separators=(",", ":"))
    if len(text) <= LONGEST_KEY:
        return text
    return f"~{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def _known_fields(kind: type[DeadLetter] | type[Skip], text: str) -> dict[str, object]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in json.loads(text).items() if name in names}
