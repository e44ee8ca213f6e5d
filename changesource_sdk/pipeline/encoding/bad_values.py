"""Rows that no consumer can hold, along the stream: stop, leave them out, or replace a value by null.

| policy | what happens |
|---|---|
| `stop` | the error ends the transaction |
| `dead-letter` | consumers lose the row, so that none keeps an older version, and a dead letter names it |
| `null` | a value of an optional column becomes null, and a dead letter names it; otherwise as `dead-letter` |

A row that was left out is unknown to consumers. So an update of it is sent as an insert, a delete of it is not sent,
and either takes its letter away; an update that brings only some columns leaves the row out, because the rest of it
is not known. One limit: a bad insert that would have replaced another row only through a unique index other than
the key leaves that row in place, unless the adapter deletes it as well.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from changesource_sdk.adapter import BadRow, Delete, Insert, Row, Update
from changesource_sdk.changelog.dead_letters import (
    ANY_TRANSACTION,
    MOST_LETTERS,
    MOST_NULLED,
    DeadLetter,
    LetterEdit,
    Outcome,
    RowName,
    Skip,
    apply_edit,
    key_text,
)
from changesource_sdk.errors import AdapterError, ChangesourceError, InvalidChange, RefusedRow
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.policies.bad_values import BadValuePolicy
from service_kit.logs import event, logger

_log = logger("runner")

BAD_VALUES = frozenset({"value-does-not-fit", "row-too-large", "mapping-failed"})
"""Codes of errors that are about one row. Others say that the adapter or a declaration is wrong: they always stop."""

WAYS_OUT = "; or continue without the row: changesource skip, or set on-bad-value to dead-letter"
RowChange: TypeAlias = Insert | Update | Delete
AnyRow: TypeAlias = RowChange | BadRow


@dataclass(frozen=True, slots=True)
class BadValueRules:
    """What a run does with bad values; picklable. `skips` are what an operator asked to leave out."""

    policy: BadValuePolicy = "stop"
    skips: tuple[Skip, ...] = ()
    source: str = ""


class BadValues:
    """The letters of one log along its stream. Used by one thread; between `begin` and `commit` or `rollback`."""

    def __init__(
        self,
        rules: BadValueRules | None = None,
        letters: Iterable[DeadLetter] = (),
        now_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        # Replaced by `commit` when a request was about the next transaction.
        self._rules = rules or BadValueRules()
        self._now_ms = now_ms
        # The letters after the last commit.
        self._committed = {letter.name: letter for letter in letters}
        # The same with the edits of the open transaction: the same object before the first edit, a copy after it.
        self._letters = self._committed
        # Edits of the open transaction, and the requests that it carried out.
        self._edits: list[LetterEdit] = []
        self._skipped: list[Skip] = []  # see `_edits`
        # Text of the open transaction's position; set by `begin`.
        self._position = ""

    @property
    def is_watching(self) -> bool:
        """Whether row changes must pass `admitted`, since some rows have letters."""
        return bool(self._letters)

    def begin(self, position: str) -> Skip | None:
        """Start a transaction; the request to skip all of it, if there is one."""
        self._position = position
        return next((skip for skip in self._rules.skips if skip.matches(position)), None)

    def commit(self) -> tuple[tuple[LetterEdit, ...], tuple[Skip, ...]]:
        """End a transaction that was encoded: its edits, and the requests that it carried out."""
        made = tuple(self._edits), tuple(self._skipped)
        if any(skip.position == ANY_TRANSACTION for skip in self._rules.skips):
            # This was the next transaction.
            named = tuple(skip for skip in self._rules.skips if skip.position != ANY_TRANSACTION)
            self._rules = replace(self._rules, skips=named)
        self._committed = self._letters
        self._edits, self._skipped = [], []
        return made

    def rollback(self) -> None:
        """Forget what the open transaction did."""
        self._letters = self._committed
        self._edits, self._skipped = [], []

    def letters(self) -> list[DeadLetter]:
        """The letters now."""
        return list(self._letters.values())

    # --- good changes ---

    def admitted(self, encoder: TableEncoder, change: RowChange) -> RowChange | None:
        """A change as it is sent, given the rows that consumers do not have; None if there is nothing to send."""
        match change:
            case Insert(_, row):
                self._remove(self._name(encoder, row))
                return change
            case Update(table, row, old_key):
                old, new = self._name(encoder, row if old_key is None else old_key), self._name(encoder, row)
                letter = self._letters.get(old)
                if letter is None:
                    # The row that had this key before must be gone upstream.
                    self._remove(new)
                    return change
                if letter.outcome == "null":
                    is_over = all(name in row for name in letter.column.split(", "))
                    self._move(letter, None if is_over else new)
                    return change
                if not encoder.is_whole(row):
                    self._move(letter, new)
                    return None
                self._move(letter, None)
                return Insert(table, row)
            case Delete(_, key):
                letter = self._letters.get(self._name(encoder, key))
                if letter is not None:
                    self._move(letter, None)
                return None if letter is not None and letter.outcome == "left out" else change

    def emptied(self, table: str) -> None:
        """All rows of a table are gone."""
        if any(name.table == table for name in self._letters):
            self._edit(LetterEdit(table))

    def renamed(self, old: str, new: str) -> None:
        """A table has another name."""
        if any(name.table == old for name in self._letters):
            self._edit(LetterEdit(old, renamed=new))

    # --- bad changes ---

    def instead_of(
        self, encoder: TableEncoder, change: AnyRow, error: ChangesourceError, explained: ChangesourceError
    ) -> list[RowChange]:
        """What is sent instead of a change that cannot be sent. Raises `error`, marked with the row, if it must stop.

        The letter says what `explained` says.
        """
        name, shown = self._named(encoder, change)
        error.refused = RefusedRow(self._position, *name, shown)
        request = next((skip for skip in self._rules.skips if skip.matches(self._position, name)), None)
        if request is not None:
            self._skipped.append(replace(request, position=self._position, changes=1))
            return self._leave_out(encoder, change, explained, request)
        if not isinstance(change, BadRow) and error.code not in BAD_VALUES:
            raise error
        if self._rules.policy == "stop":
            error.fix += WAYS_OUT
            raise error
        if self._rules.policy == "null" and isinstance(change, Insert | Update):
            return self._nulled(encoder, change, error, explained)
        return self._leave_out(encoder, change, explained)

    def skipped(self, encoder: TableEncoder, change: AnyRow, request: Skip) -> list[RowChange]:
        """What is sent of a row change in a transaction that is skipped: nothing but its removal."""
        error = InvalidChange("skipped", "its transaction was skipped", f"table {encoder.table.full_name}", "")
        return self._leave_out(encoder, change, error, request)

    def carried_out(self, request: Skip, changes: int) -> None:
        """Note that a whole transaction of so many changes was skipped."""
        self._skipped.append(replace(request, changes=changes))

    def _nulled(
        self, encoder: TableEncoder, change: Insert | Update, error: ChangesourceError, explained: ChangesourceError
    ) -> list[RowChange]:
        table, columns = encoder.table, list[str]()
        refused: ChangesourceError = error
        while isinstance(refused, InvalidChange) and refused.column:
            column = table.column(refused.column)
            if column is None or column.name in table.key or not column.optional:
                reason = "it is part of the key" if refused.column in table.key else "it is not optional"
                explained.message += f"; null cannot replace it: {reason}"
                break
            columns.append(column.name)
            change = replace(change, row={**change.row, column.name: None})
            try:
                encoder.insert(change.row) if isinstance(change, Insert) else encoder.update(change.row, change.old_key)
            except InvalidChange as another:
                refused = another
                continue
            self._put(self._letter(encoder, change, "null", explained, ", ".join(columns)))
            return [change]
        return self._leave_out(encoder, change, explained)

    def _leave_out(
        self, encoder: TableEncoder, change: AnyRow, error: ChangesourceError, request: Skip | None = None
    ) -> list[RowChange]:
        """Remove the row from consumers that may have it, and write a letter."""
        match change:
            case Insert(_, row):
                before = row
            case Update(_, row, old_key):
                before = row if old_key is None else old_key
            case Delete(_, key):
                # A key that cannot be sent was never sent.
                self._remove(self._name(encoder, key))
                return []
            case BadRow(_, key, old_key):
                before = key if old_key is None else old_key
        was_left_out = (known := self._letters.get(self._name(encoder, before))) and known.outcome == "left out"
        self._remove(self._name(encoder, before))
        self._put(self._letter(encoder, change, "left out", error, getattr(error, "column", ""), request))
        if was_left_out or encoder.wire_key(before) is None:
            return []
        return [Delete(encoder.table.full_name, {name: before[name] for name in encoder.table.key})]

    # --- letters ---

    def _letter(
        self,
        encoder: TableEncoder,
        change: AnyRow,
        outcome: Outcome,
        error: ChangesourceError,
        column: str,
        request: Skip | None = None,
    ) -> DeadLetter:
        name, shown = self._named(encoder, change)
        said = (error.code, error.message, error.where, error.fix.removesuffix(WAYS_OUT))
        who = (request.by, request.reason) if request else ("", "")
        source = self._rules.source
        return DeadLetter(*name, shown, outcome, column, *said, self._position, self._now_ms(), *who, source)

    def _put(self, letter: DeadLetter) -> None:
        fields = {"table": letter.table, "row": letter.row, "code": letter.code, "where": letter.where}
        if letter.outcome == "null":
            event(_log, logging.WARNING, "a value was replaced by null", **fields, column=letter.column)
            if self._number("null", MOST_NULLED) >= MOST_NULLED and letter.name not in self._letters:
                return
        else:
            if self._number("left out", MOST_LETTERS) >= MOST_LETTERS and letter.name not in self._letters:
                raise too_many(letter)
            event(_log, logging.WARNING, "a row was left out", **fields, reason=letter.reason or letter.message)
        self._edit(LetterEdit(letter.table, letter.key, letter))

    def _number(self, outcome: Outcome, limit: int) -> int:
        """How many letters have this outcome; not counted while there are fewer of all kinds than the limit."""
        known = self._letters.values()
        return sum(each.outcome == outcome for each in known) if len(known) >= limit else 0

    def _move(self, letter: DeadLetter, name: RowName | None) -> None:
        """Take a letter away, or give it another key."""
        if name == letter.name:
            return
        self._edit(LetterEdit(letter.table, letter.key))
        if name is not None:
            self._edit(LetterEdit(name.table, name.key, replace(letter, key=name.key)))

    def _remove(self, name: RowName) -> None:
        if name in self._letters:
            self._edit(LetterEdit(*name))

    def _edit(self, edit: LetterEdit) -> None:
        if self._letters is self._committed:
            self._letters = dict(self._committed)
        self._edits.append(edit)
        apply_edit(self._letters, edit)

    def _named(self, encoder: TableEncoder, change: AnyRow) -> tuple[RowName, str]:
        """The row that a change is about, and its key for people."""
        row: Row = change.key if isinstance(change, Delete | BadRow) else change.row
        if encoder.table.key:
            return self._name(encoder, row), encoder.shown_key(row)
        # Rows without a key are all different; the letter goes with the table's next truncate or snapshot.
        return RowName(encoder.table.full_name, key_text(("#", self._position, len(self._edits)))), ""

    def _name(self, encoder: TableEncoder, row: Row) -> RowName:
        values = encoder.wire_key(row)
        if values is None:
            values = [row.get(name) if isinstance(row, Mapping) else None for name in encoder.table.key]
        return RowName(encoder.table.full_name, key_text(values))


def check_number(letters: Iterable[DeadLetter]) -> None:
    """Raise `AdapterError` if more rows are left out than may be at a time."""
    left_out = [letter for letter in letters if letter.outcome == "left out"]
    if len(left_out) > MOST_LETTERS:
        raise too_many(left_out[-1])


def too_many(letter: DeadLetter) -> AdapterError:
    """The error for a row that would be left out after too many others."""
    return AdapterError(
        "too-many-dead-letters",
        f"more than {MOST_LETTERS} rows would be left out; one of them: {letter.message}",
        letter.where,
        "this is no single bad value: correct the type of the column, or its mapping",
    )
