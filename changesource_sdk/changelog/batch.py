"""The rows of one append: which transactions are new, what watermark each gets, and how it is stored. Pure.

The writer asks the log what it knows already and hands the answer in; everything else is decided here.
"""

from __future__ import annotations

from changesource_sdk import positions
from changesource_sdk.changelog.envelope import begin_frame, commit_frame
from changesource_sdk.changelog.log import EncodedTransaction
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.errors import InvalidChange
from protocol import watermark as watermarks

TransactionRow = tuple[str, str, float | None, int, int, bytes | None, str | None, int | None]
"""Watermark, position, commit time, number of changes, size, frames, segment name and checksum."""


class Batch:
    """The rows of one append: the major number of watermarks strictly increases, and a position appears once.

    `major` is that of `head`; watermarks that the adapter does not give itself are numbered from above `floor`.
    """

    def __init__(self, head: str, major: int, floor: int = 0) -> None:
        self.head = head
        self.major = major
        self._floor = floor
        self.rows: list[TransactionRow] = []
        self.watermarks: list[str] = []
        self.last: EncodedTransaction | None = None
        self.schema: str | None = None
        self.segments: list[tuple[str, BlockFile]] = []  # of the rows whose data are not in the row
        self.unneeded: list[BlockFile] = []
        self._added: dict[str, str] = {}

    def add(self, transaction: EncodedTransaction, position: str, known: str | None) -> None:
        """Take the transaction in, unless its position is known already."""
        known = known or self._added.get(position)
        if known is None:
            known = self._take(transaction, position)
        elif isinstance(transaction.data, BlockFile):
            self.unneeded.append(transaction.data)
        self.watermarks.append(known)

    def _take(self, transaction: EncodedTransaction, position: str) -> str:
        watermark = self._next(transaction)
        self.rows.append(_row(transaction, watermark, position))
        if isinstance(transaction.data, BlockFile):
            self.segments.append((watermark, transaction.data))
        self._added[position] = watermark
        self.last = transaction
        if transaction.schema_after is not None:
            self.schema = transaction.schema_after
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
        return watermark, position, time, transaction.changes, size + data.size, None, name, crc32
    frames = b"".join((begin, data, commit))
    return watermark, position, time, transaction.changes, len(frames), frames, None, None
