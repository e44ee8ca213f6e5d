"""What an author's listing yields, and reading it in batches that fit in memory.

A batch ends after `BATCH_ROWS` rows or `BATCH_BYTES` of their digested form, so that memory does not grow with the
number of rows, and hardly with their size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from changesource_sdk.adapter import Delete, Row
from changesource_sdk.by_difference.row_digests import RowDigester
from changesource_sdk.contract import no_row
from changesource_sdk.errors import AdapterError
from changesource_sdk.positions import Position

BATCH_ROWS = 1_000
BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Cursor:
    """What the next `changed_since` of this table gets: any JSON value, such as an ETag, a token or a time.

    It is stored together with the digests, so it never is ahead of the rows that consumers have.
    """

    value: Position


class Complete(Enum):
    """The type of `COMPLETE`."""

    COMPLETE = "complete"


COMPLETE: Literal[Complete.COMPLETE] = Complete.COMPLETE
"""The first item of a `changed_since` that lists all rows after all: rows it does not yield were deleted."""

Item: TypeAlias = Row | Delete | Cursor | Complete
"""What `rows` and `changed_since` may yield. `rows` may yield rows and a `Cursor` only."""


class DigestedRow(NamedTuple):
    """A row with its key as text and its digest. `row` is None for a deleted row."""

    key: str
    digest: bytes | None
    row: Row | None


class Listing:
    """The rows of one table as its author lists them, read once.

    `is_complete`: rows that do not come were deleted. `cursor` is the last `Cursor` that came.
    """

    def __init__(
        self, table: str, items: object, digester: RowDigester, *, is_complete: bool, is_ended: Callable[[], bool]
    ) -> None:
        """`is_ended` is checked for each batch; `ListingEnded` is raised when it returns true.

        Raises `AdapterError` if `items` cannot be iterated.
        """
        method = "rows()" if is_complete else "changed_since()"
        if not isinstance(items, Iterable) or isinstance(items, str | bytes | Mapping):
            kind = type(items).__name__
            raise AdapterError(
                "broken-contract",
                f"gave a {kind} instead of rows",
                f"{method} of table {table}",
                "yield rows: dicts of column names and values",
            )
        self._where = f"{method} of table {table}"
        self._items: Iterator[object] = iter(items)
        self._table = table
        self._digester = digester
        self._is_ended = is_ended
        # Whether `COMPLETE` may still come: until the first other item. Written by `batches`.
        self._is_at_start = not is_complete
        # Written by `batches` when `COMPLETE` comes, before its first batch.
        self.is_complete = is_complete
        # The value of the last `Cursor` so far; written by `batches`.
        self.cursor: Position = None

    def batches(self) -> Iterator[list[DigestedRow]]:
        """All rows in batches. Raises what the author's code raises, and `AdapterError` for a wrong item."""
        batch: list[DigestedRow] = []
        size = 0
        digester = self._digester
        for item in self._items:
            if type(item) is dict:  # nearly all
                batch.append(DigestedRow(digester.key(item), digester.digest(item), item))
            elif isinstance(item, Cursor):
                self.cursor = item.value
                continue
            elif item is COMPLETE:
                self._begin_complete()
                continue
            else:
                batch.append(self._digested(item))
            self._is_at_start = False
            size += digester.last_size
            if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
                self._check_ended()
                yield batch
                batch, size = [], 0
        self._check_ended()
        if batch:
            yield batch

    def _begin_complete(self) -> None:
        if not self._is_at_start:
            raise self._wrong("COMPLETE came after rows", "yield COMPLETE before the first row")
        self._is_at_start = False
        self.is_complete = True

    def _digested(self, item: object) -> DigestedRow:
        if isinstance(item, Delete):
            if self.is_complete:
                raise self._wrong("a Delete came in a complete listing", "leave deleted rows out; they are inferred")
            return DigestedRow(self._digester.key(item.key), None, None)
        if not isinstance(item, Mapping):
            raise no_row(self._table, item)
        return DigestedRow(self._digester.key(item), self._digester.digest(item), item)

    def _check_ended(self) -> None:
        if self._is_ended():
            raise ListingEnded

    def _wrong(self, message: str, fix: str) -> AdapterError:
        return AdapterError("broken-contract", message, self._where, fix)


class ListingEnded(Exception):
    """The adapter was closed while it listed rows."""
