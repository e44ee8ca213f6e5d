"""Records that cannot be read, and what becomes of them: the stream stops there, or they are set aside in a file.

The file has one JSON object per line: where the record was, why it cannot be read, and its key and value in base64. A
line is on disk before reading goes on. A record may be set aside again after a restart; its place tells.
"""

from __future__ import annotations

import logging
import os
from base64 import b64encode
from pathlib import Path

import orjson
from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.settings import KafkaSettings
from adapters.kafka.spool import Where
from changesource_sdk.errors import AdapterError
from changesource_sdk.observe.logs import event, logger

_log = logger("kafka")


class DeadLetters:
    """What is done with records that cannot be read. Invariant: none is passed over unless its line is on disk."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._path = Path(settings.dead_letters) if settings.poison == "set-aside" else None

    def put(self, record: ConsumerRecord, reason: str, *, must_stop: str = "") -> None:
        """Set a record aside, or raise if it is to stop the stream; `must_stop` says why it has to."""
        where = (record.topic, record.partition, record.offset)
        if self._path is None or must_stop:
            raise poison_record(where, f"{reason}{must_stop and f'; {must_stop}'}")
        self._append(self._path, record, reason)
        event(_log, logging.WARNING, "a record was set aside", record=_place(where), reason=reason, kept_in=self._path)

    def _append(self, path: Path, record: ConsumerRecord, reason: str) -> None:
        line = orjson.dumps(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "reason": reason,
                "key": _text(record.key),
                "value": _text(record.value),
            }
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
        f"the record at {_place(where)} cannot be read: {reason}",
        where=_place(where),
        fix="correct the decoder or the table's columns; or go on without such records: "
        "--set poison=set-aside --set dead_letters=PATH",
    )


def _place(where: Where) -> str:
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
