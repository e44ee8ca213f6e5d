"""Records that cannot be read: the stream stops, or they are set aside in a file.

The file has one JSON object per line: topic, partition and offset of the record, why it cannot be read, the key of the
row it is about (null if that is unknown), and its key and value in base64. A line is on disk before reading continues.
After a restart a record may be set aside again; its offset is the same.

The record has replaced an older one of its row, so consumers must not keep that one: where the row is known, the
pipeline gets a `BadRow`, removes the row from consumers and lists it in the log's dead letters as well.
"""

from __future__ import annotations

import logging
import os
from base64 import b64encode
from pathlib import Path

import orjson
from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.settings import KafkaSettings
from adapters.kafka.transactions.spool import Where
from changesource_sdk import AdapterError, BadRow, Row
from changesource_sdk.toolkit import event, logger

_log = logger("kafka")

UNKNOWN_ROW = "which row it is about cannot be read either, so consumers keep that row as they have it"


class DeadLetters:
    """Handles records that cannot be read. Invariant: a record is only skipped when its line is on disk."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._path = Path(settings.dead_letters)
        self._sets_aside = settings.poison == "set-aside"
        self._sets_mismatches_aside = settings.key_mismatch == "set-aside"

    def put(
        self,
        record: ConsumerRecord,
        reason: str,
        row_key: Row | None = None,
        *,
        is_mismatch: bool = False,
        must_stop: str = "",
    ) -> None:
        """Set a record aside, or raise if it is to stop the stream; `must_stop` says why it has to.

        `row_key` is the key of its row, None if that is unknown. `is_mismatch`: its key is not that of its row; what
        then happens has a setting of its own.
        """
        where = (record.topic, record.partition, record.offset)
        if must_stop or not (self._sets_mismatches_aside if is_mismatch else self._sets_aside):
            refused = key_mismatch if is_mismatch else poison_record
            raise refused(where, f"{reason}{must_stop and f'; {must_stop}'}")
        if row_key is None and not is_mismatch:
            reason = f"{reason}; {UNKNOWN_ROW}"
        self._append(self._path, record, reason, row_key)
        event(
            _log,
            logging.WARNING,
            "a record was set aside",
            record=record_name(where),
            reason=reason,
            kept_in=self._path,
        )

    def _append(self, path: Path, record: ConsumerRecord, reason: str, row_key: Row | None) -> None:
        line = orjson.dumps(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "reason": reason,
                "row": row_key,
                "key": _text(record.key),
                "value": _text(record.value),
            },
            default=str,
        )
        try:
            with path.open("ab") as file:
                file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            fix = "make the path of `dead_letters` writable"
            raise AdapterError("dead-letters", f"a record cannot be set aside: {error}", str(path), fix) from error


def poison_record(where: Where, reason: str) -> AdapterError:
    """The error for a record that stops the stream."""
    return AdapterError(
        "poison-record",
        f"the record at {record_name(where)} cannot be read: {reason}",
        where=record_name(where),
        fix="correct the decoder or the table's columns; or continue without such records: "
        "--set poison=set-aside --set dead_letters=PATH",
    )


def bad_row(record: ConsumerRecord, reason: str, table: str, row_key: Row) -> BadRow:
    """What the pipeline gets for a record that was set aside, if it is known which row the record is about."""
    where = (record.topic, record.partition, record.offset)
    error = poison_record(where, reason)
    error.fix = "write the row again, or correct the decoder or the table's columns and take a new snapshot"
    return BadRow(table, row_key, None, error)


def key_mismatch(where: Where, reason: str) -> AdapterError:
    """The error for a record whose key is not that of its row."""
    return AdapterError(
        "key-mismatch",
        f"the key of the record at {record_name(where)} is not that of a row: {reason}",
        where=record_name(where),
        fix='if keys are plain texts, say so: key_format = "text" in [set.tables.NAME]; name key columns with `key`; '
        "or --set key_mismatch=value if no tombstones are written, "
        "or --set key_mismatch=set-aside --set dead_letters=PATH to continue without such records",
    )


def record_name(where: Where) -> str:
    """`topic[partition] offset n`, for messages."""
    topic, partition, offset = where
    return f"{topic}[{partition}] offset {offset}"


def count_letters(path: str) -> int:
    """How many lines the file has."""
    try:
        with Path(path).open("rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()
