"""Batches of the stream, evaluated: Spark runs a mapping's expressions over their rows, and changes come out.

The rows of a change and of its images are brought together again, each image with the results of its expressions in
its slots, and grouped to pieces of transactions in the order of the store (`change_source` says what a row is).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from changesource_sdk.adapter import Change
from changesource_sdk.pipeline.mapping.images import Image, with_slots
from changesource_sdk.pipeline.mapping.table import MappedTable
from changesource_sdk.pipeline.spark.job import SparkFailure
from changesource_sdk.pipeline.spark.sql import change_source
from changesource_sdk.pipeline.spark.sql.change_source import (
    CHANGE,
    IDS,
    IMAGE,
    IMAGES,
    NO_TABLE,
    PAYLOAD,
    TABLE,
    TRANSACTION,
    TransactionHead,
    cell,
)
from changesource_sdk.pipeline.spark.sql.mapping import SlotReader, check_sql, explained, gist

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, Row, SparkSession


@dataclass(frozen=True, slots=True)
class Piece:
    """Changes of one transaction, evaluated: the first piece has its head, the last its end."""

    head: TransactionHead | None
    changes: list[Change]
    is_last: bool


class Batches:
    """Evaluates batches of the stream: rows of Spark in, whole transactions with their slots out."""

    def __init__(self, session: SparkSession, tables: Sequence[MappedTable]) -> None:
        self._tables = tables
        checked = [check_sql(session, table) for table in tables]
        self._columns: list[list[SparkColumn]] = [columns for columns, _ in checked]
        self._readers: list[SlotReader] = [reader for _, reader in checked]

    def evaluated(self, frame: DataFrame) -> list[Piece]:
        """What a batch holds of transactions, in the order of the store."""
        try:
            rows = self._with_results(frame).collect()
        except Exception as error:
            raise explained(error, self._tables) or stream_failure(gist(str(error))) from error
        rows.sort(key=lambda row: (row[TRANSACTION], row[CHANGE], row[IMAGE]))
        return [self._piece(group) for _, group in groupby(rows, key=lambda row: row[TRANSACTION])]

    def _with_results(self, frame: DataFrame) -> DataFrame:
        """The rows of changes as they are, and for each image the results of its table's expressions."""
        from pyspark.sql import functions

        rows = frame.where(frame[TABLE] == NO_TABLE).select(*IDS, PAYLOAD)
        for number, (table, columns) in enumerate(zip(self._tables, self._columns, strict=True)):
            names = [frame[cell(number, i)].alias(name) for i, name in enumerate(table.source.column_names)]
            inputs = frame.where(frame[TABLE] == number).select(*IDS, *names)
            results = inputs.select(*IDS, functions.struct(*columns).alias(f"_{number}"))
            rows = rows.unionByName(results, allowMissingColumns=True)
        return rows

    def _piece(self, rows: Iterable[Row]) -> Piece:
        head, is_last = None, False
        changes: list[Change] = []
        for kind, group in groupby(rows, key=lambda row: row[CHANGE]):
            members = list(group)
            match kind:
                case change_source.FAILURE:
                    raise pickle.loads(members[0][PAYLOAD])
                case change_source.HEAD:
                    head = pickle.loads(members[0][PAYLOAD])
                case change_source.END:
                    is_last = True
                case _:
                    changes.append(self._change(*members))
        return Piece(head, changes, is_last)

    def _change(self, row: Row, *image_rows: Row) -> Change:
        change: Change = pickle.loads(row[PAYLOAD])
        slots: dict[Image, dict[str, object]] = {}
        for image, number in IMAGES.items():
            for image_row in image_rows:
                if image_row[IMAGE] == number:
                    slots[image] = self._slots(image_row)
        return with_slots(change, slots)

    def _slots(self, row: Row) -> dict[str, object]:
        number = next(n for n in range(len(self._tables)) if row[f"_{n}"] is not None)
        return self._readers[number].read(row[f"_{number}"])


def stream_failure(message: str) -> SparkFailure:
    """Something of Spark's ended the stream."""
    fix = "see spark.log in the state directory; the query is started again with a growing delay"
    return SparkFailure("stream-failed", message, "micro-batch lane", fix)
