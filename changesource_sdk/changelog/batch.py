"""The rows of one append: which transactions are new, what watermark each gets, and how it is stored. Pure.

The writer looks up which positions the log has already; everything else is decided here.
"""

from __future__ import annotations

from dataclasses import replace

from changesource_sdk import positions
from changesource_sdk.changelog.dead_letters import LetterEdit, Skip
from changesource_sdk.changelog.envelope import begin_frame, commit_frame
from changesource_sdk.changelog.log import EncodedTransaction, TransactionRow
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.errors import InvalidChange
from protocol import watermark as watermarks


class Batch:
    """The rows of one append: the major number of watermarks strictly increases, and a position appears once.

    `major` is that of `head`; transactions for which the adapter gives no watermark are numbered from above `floor`.
    All attributes but `_floor` grow with `add`.
    """

    def __init__(self, head: str, major: int, floor: int = 0) -> None:
        self._floor = floor
        # Watermark of the last new transaction, and its major number.
        self.head = head
        self.major = major
        # The new transactions.
        self.rows: list[TransactionRow] = []
        # Watermark and block file of each new transaction that was spilled to disk.
        self.segments: list[tuple[str, BlockFile]] = []
        # The watermark of every transaction added, new or not.
        self.watermarks: list[str] = []
        # The last new transaction, also one without changes; None if all are stored already.
        self.last: EncodedTransaction | None = None
        # The consumer schema after the last new transaction that changed it; None if none did.
        self.schema: str | None = None
        # What the new transactions set aside, bring back and skip, in order.
        self.letters: list[LetterEdit] = []
        self.skips: list[Skip] = []  # see `letters`
        # Block files of transactions that are stored already.
        self.unneeded: list[BlockFile] = []
        # Watermarks of the new transactions by position.
        self._added: dict[str, str] = {}

    def add(self, transaction: EncodedTransaction, position: str, known: str | None) -> None:
        """Add a transaction; `known` is the watermark its position has in the log, None if it is new there."""
        known = known or self._added.get(position)
        if known is None:
            known = self._take(transaction, position)
        elif isinstance(transaction.data, BlockFile):
            self.unneeded.append(transaction.data)
        self.watermarks.append(known)

    def _take(self, transaction: EncodedTransaction, position: str) -> str:
        watermark = self._next(transaction) if transaction.changes else self.head
        if transaction.changes:
            self.rows.append(_row(transaction, watermark, position))
        if isinstance(transaction.data, BlockFile):
            self.segments.append((watermark, transaction.data))
        self._added[position] = watermark
        self.last = transaction
        if transaction.schema_after is not None:
            self.schema = transaction.schema_after
        self.letters += transaction.letters
        self.skips += [replace(skip, watermark=watermark) for skip in transaction.skips]
        return watermark

    def _next(self, transaction: EncodedTransaction) -> str:
        own = transaction.watermark
        if own is None:
            self.major = max(self.major, self._floor) + 1
            self.head = watermarks.from_int(self.major)
        elif (major := watermarks.to_int(own)[0]) > self.major:
            self.head, self.major = own, major
        else:
            raise InvalidChange(
                "watermark-not-increasing",
                f"the adapter gave watermark {own!r} after {self.head!r}",
                where=f"position {positions.to_text(transaction.position)}",
                fix="give watermarks whose major number strictly increases, or none",
            )
        return self.head


def _row(transaction: EncodedTransaction, watermark: str, position: str) -> TransactionRow:
    time, data = transaction.commit_time_ms, transaction.data
    begin, commit = begin_frame(watermark), commit_frame(watermark, time)
    size = len(begin) + len(commit)
    if isinstance(data, BlockFile):
        name, crc32 = data.path.name, data.crc32
        return TransactionRow(watermark, position, time, transaction.changes, size + data.size, None, name, crc32)
    frames = b"".join((begin, data, commit))
    return TransactionRow(watermark, position, time, transaction.changes, len(frames), frames, None, None)
