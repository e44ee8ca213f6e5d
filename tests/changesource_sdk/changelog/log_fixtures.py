"""What log tests are made of: a clock that stands still, small transactions, and how to read them back."""

from __future__ import annotations

from pathlib import Path

from changesource_sdk.changelog.log import EncodedTransaction, Log
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.positions import Position
from protocol.framing import frame, unframe

START_US = 1_700_000_000_000_000


def writer_of(state: Path, now_us: int = START_US) -> LogWriter:
    return SqliteLogStore(state).open_writer(lambda: now_us)


def writer_with_generation(state: Path, position: Position = 0) -> LogWriter:
    writer = writer_of(state)
    begin_generation(writer, state, position)
    return writer


def begin_generation(writer: LogWriter, state: Path, position: Position = 0, above: str = "00") -> str:
    watermark = writer.next_generation(above)
    directory = state / "spool" / watermark
    directory.mkdir(parents=True)
    writer.start_generation(watermark, position, "{}", directory, 1.0)
    return watermark


def transaction(
    position: Position, body: str = "x", *, watermark: str | None = None, schema: str | None = None
) -> EncodedTransaction:
    data = frame(b'["data","%s"]' % body.encode())
    return EncodedTransaction(position, 12.5, watermark, data, 1, schema)


def spilled(position: Position, file: BlockFile, changes: int) -> EncodedTransaction:
    return EncodedTransaction(position, None, None, file, changes)


def payloads(reader: Log, after: str = "00", max_bytes: int = 1 << 30) -> list[bytes]:
    stored = reader.read_after(after, max_bytes)
    return [payload for item in stored for chunk in item.chunks() for payload in unframe(chunk)]
