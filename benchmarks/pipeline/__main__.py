"""`python -m benchmarks.pipeline`: encode rows into a snapshot part, encode transactions, append them; JSON on stdout.

Rates are given by the clock on the wall and by processor time: on a busy machine only the second compares. Targets, in
processor time: 300,000 rows/s of 8 columns encoded and written; 20,000 one-row transactions/s appended durably.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks import environment
from changesource_sdk.adapter import Insert, Row, Transaction
from changesource_sdk.changelog.log import EncodedTransaction
from changesource_sdk.changelog.spool.snapshots import write_part
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.pipeline.encoding.transactions import TransactionEncoder
from changesource_sdk.schema import Column, Table

PLAIN = Table(
    "issue",
    [
        Column("id", int),
        Column("title", str),
        Column("body", str),
        Column("owner", str),
        Column("open", bool),
        Column("score", float),
        Column("votes", int),
        Column("created", "timestamptz"),
    ],
)
CONVERTED = Table("issue", [Column("body", dict) if c.name == "body" else c for c in PLAIN.columns])
ROWS_TARGET, APPEND_TARGET = 300_000, 20_000
GROUP = 500
_EPOCH = datetime(2024, 1, 1, tzinfo=UTC)


def row(number: int) -> dict[str, object]:
    """A row of about 300 bytes on the wire whose values need no conversion."""
    return {
        "id": number,
        "title": f"title {number}",
        "body": "x" * 80,
        "owner": f"u{number % 100}",
        "open": number % 2 == 0,
        "score": number * 1.5,
        "votes": number * 7,
        "created": 1.7e12 + number,
    }


def converted_row(number: int) -> dict[str, object]:
    """The same with a JSON document and a datetime, as drivers give them."""
    return {**row(number), "body": {"a": number, "b": [1, 2]}, "created": _EPOCH + timedelta(seconds=number)}


def measure(count: int, work: Callable[[], object]) -> dict[str, int]:
    """Rates of one run of `work`, which handles `count` things."""
    # A pipeline reads rows as they come; the collector would be busy with the many that a benchmark keeps at hand.
    gc.freeze()
    wall, processor = time.perf_counter(), time.process_time()
    work()
    elapsed, used = time.perf_counter() - wall, time.process_time() - processor
    return {"perSecond": round(count / elapsed), "perProcessorSecond": round(count / used)}


def write_rows(folder: Path, table: Table, rows: list[Row]) -> dict[str, int]:
    """Rows into one durable part; the second of two runs."""
    encoder = TableEncoder(table)
    for _ in range(2):
        result = measure(len(rows), lambda: write_part(folder, 1, table.full_name, rows, encoder.inserts))
    return result


def encode_transactions(folder: Path, rows: list[Row], size: int) -> tuple[dict[str, int], list[EncodedTransaction]]:
    """Transactions of `size` rows, from the author's changes to frames; rates count rows."""
    encoder = TransactionEncoder(ConsumerSchema.of([PLAIN]), lambda: folder / "segment")
    encoded: list[EncodedTransaction] = []

    def work() -> None:
        for start in range(0, len(rows), size):
            changes = [Insert("issue", each) for each in rows[start : start + size]]
            encoded.append(encoder.encode(Transaction(start + 1, changes)))

    return measure(len(rows), work), encoded


def append(folder: Path, transactions: list[EncodedTransaction]) -> dict[str, int]:
    """Groups of transactions, each group one synced commit; rates count transactions."""
    writer = SqliteLogStore(folder).open_writer(lambda: int(time.time() * 1_000_000))
    watermark = writer.next_generation()
    (folder / "spool" / watermark).mkdir()
    writer.start_generation(watermark, 0, "", folder / "spool" / watermark, 0.0)

    def work() -> None:
        for start in range(0, len(transactions), GROUP):
            writer.append(transactions[start : start + GROUP])

    result = measure(len(transactions), work)
    writer.close()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows to encode")
    rows = [row(number) for number in range(parser.parse_args().rows)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        snapshot = write_rows(folder, PLAIN, list(rows))
        converted = write_rows(folder, CONVERTED, [converted_row(number) for number in range(len(rows))])
        tens, _ = encode_transactions(folder, list(rows), 10)
        ones, transactions = encode_transactions(folder, list(rows), 1)
        appended = append(folder / "state", transactions)
    met = snapshot["perProcessorSecond"] >= ROWS_TARGET and appended["perProcessorSecond"] >= APPEND_TARGET
    figures = {
        "snapshot rows": snapshot,
        "snapshot rows with JSON and datetime": converted,
        "rows in transactions of 10": tens,
        "rows in transactions of 1": ones,
        f"transactions appended in groups of {GROUP}": appended,
    }
    document = {"benchmark": "pipeline", "environment": environment.describe(), **figures, "met": met}
    print(json.dumps(document, indent=2))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
