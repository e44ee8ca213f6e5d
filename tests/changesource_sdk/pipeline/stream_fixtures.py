"""A transcript of what a consumer would see, so that the protocol's own checker can judge it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from changesource_sdk.adapter import Change, Transaction
from changesource_sdk.changelog.envelope import begin_frame, commit_frame
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.endpoint.stream.system_frames import system_frames
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.schema_frames import snapshot_schema
from changesource_sdk.pipeline.encoding.transactions import TransactionEncoder
from changesource_sdk.schema import Column, Index, Table
from changesource_sdk.system_tables import Permissions
from protocol import watermark as watermarks
from protocol.framing import unframe
from protocol.rules import Violation, check
from protocol.stream.transcript import connect_line, frame_line

ISSUE = Table(
    "issue",
    [Column("id", int), Column("title", str), Column("n", int), Column("data", dict)],
    indexes=[Index("issue_n", ["n"])],
)
MEMBER = Table("team.member", [Column("team", str), Column("user", str), Column("since", "date")], key=("team", "user"))
TABLES = (ISSUE, MEMBER)


class Stream:
    """An encoder and everything it gave so far, as one consumer sees it."""

    def __init__(
        self, tables: Sequence[Table] = TABLES, folder: Path | None = None, spill_bytes: int = 1 << 30
    ) -> None:
        schema = ConsumerSchema.of(tables)
        self._folder = folder or Path()
        self._segments = 0
        self.encoder = TransactionEncoder(schema, self._segment, spill_bytes)
        self._number = 1
        self.lines = [connect_line("/changes/v0/stream?appID=zero&shardNum=0")]
        before, after = snapshot_schema(tables)
        self._add([*system_frames("zero", 0, schema, Permissions()), *before, *after], None)
        first = watermarks.from_int(1)
        target = f"/changes/v0/stream?appID=zero&shardNum=0&lastWatermark={first}&replicaVersion={first}"
        self.lines.append(connect_line(target))

    def _segment(self) -> Path:
        self._segments += 1
        return self._folder / f"{self._segments}.frames"

    def commit(self, *changes: Change, time_ms: float | None = None) -> list[bytes]:
        """Encode one transaction; the payloads of its data frames."""
        encoded = self.encoder.encode(Transaction(self._number, iter(changes), time_ms))
        data = encoded.data
        return self._add(data.blocks() if isinstance(data, BlockFile) else [data], time_ms)

    def _add(self, chunks: Iterable[bytes], time_ms: float | None) -> list[bytes]:
        mark = watermarks.from_int(self._number)
        self._number += 1
        data = [payload for chunk in chunks for payload in unframe(chunk)]
        begin, commit = unframe(begin_frame(mark) + commit_frame(mark, time_ms))
        self.lines += [frame_line("down", text) for text in (begin, *data, commit)]
        return data

    def violations(self) -> list[Violation]:
        """What the checker has to say about all of it."""
        return check(self.lines)
