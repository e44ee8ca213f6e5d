"""Evaluates a micro-batch: Spark runs the mappings' SQL over its rows, and the rows become changes again.

`change_source` makes one row of each change and one of each image (a whole row before or after the change). Here each
image's results are put back into its change, and the changes are grouped to pieces of transactions in commit order.
Runs in the driver.
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
    """Evaluated changes of one transaction. Only its first piece has a `head`; only its last has `is_last`."""

    head: TransactionHead | None
    changes: list[Change]
    is_last: bool


class Batches:
    """Evaluates the micro-batches of one stream.

    `tables` are those with SQL, in the order of `stream_schema`. The constructor lets Spark analyse the expressions and
    raises `ConfigurationError` with the key of one that Spark refuses.
    """

    def __init__(self, session: SparkSession, tables: Sequence[MappedTable]) -> None:
        self._tables = tables
        checked = [check_sql(session, table) for table in tables]
        self._columns: list[list[SparkColumn]] = [columns for columns, _ in checked]
        self._readers: list[SlotReader] = [reader for _, reader in checked]

    def evaluated(self, frame: DataFrame) -> list[Piece]:
        """Run a batch and return its pieces of transactions, in commit order.

        Raises the upstream's failure if the batch has one, `InvalidChange` for an expression that fails on a row, and
        `SparkFailure` for everything else that Spark reports.
        """
        try:
            rows = self._with_results(frame).collect()
        except Exception as error:
            raise explained(error, self._tables) or stream_failure(gist(str(error))) from error
        rows.sort(key=lambda row: (row[TRANSACTION], row[CHANGE], row[IMAGE]))
        return [self._piece(group) for _, group in groupby(rows, key=lambda row: row[TRANSACTION])]

    def _with_results(self, frame: DataFrame) -> DataFrame:
        """Return the rows of changes unchanged, and for each image the results of its table's expressions."""
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
    """Return the error for a streaming query that Spark ended."""
    fix = "see spark.log in the state directory; the query is started again with a growing delay"
    return SparkFailure("stream-failed", message, "micro-batch lane", fix)
