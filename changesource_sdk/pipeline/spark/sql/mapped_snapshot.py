"""Snapshot parts of tables whose mapping uses Spark SQL.

A Spark task reads a partition, Spark evaluates the expressions on its rows as they pass, and the same task writes the
part: nothing is shuffled, so a partition is still a part. Each row travels pickled, together with the inputs of its
expressions, so that what SQL does not touch is not changed by passing through Spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from changesource_sdk.adapter import BadRow, Row
from changesource_sdk.changelog.spool.snapshots import PartInfo
from changesource_sdk.errors import ChangesourceError, InvalidChange
from changesource_sdk.pipeline.mapped import MappedPartition
from changesource_sdk.pipeline.mapping.row import RowMapper
from changesource_sdk.pipeline.mapping.table import MappedTable
from changesource_sdk.pipeline.snapshot.take import PartTask, adapter_call
from changesource_sdk.pipeline.spark.sql.mapping import ROW, SlotReader, SqlInputs, Values, check_sql

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

WritePart = Callable[[PartTask], PartInfo | ChangesourceError]


def uses_sql(task: PartTask) -> bool:
    """Whether the mapping of the task's table has Spark SQL."""
    return isinstance(task.partition, MappedPartition) and bool(task.partition.mapped.mapping.sql)


def by_table(tasks: Sequence[PartTask]) -> list[tuple[MappedTable, list[PartTask]]]:
    """Group the tasks of mapped tables by table."""
    groups: dict[str, tuple[MappedTable, list[PartTask]]] = {}
    for task in tasks:
        assert isinstance(task.partition, MappedPartition)
        groups.setdefault(task.table.full_name, (task.partition.mapped, []))[1].append(task)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class EvaluatedPartition:
    """A partition whose rows Spark has evaluated. `evaluated` is an iterator, so `rows` works once."""

    mapped: MappedTable
    reader: SlotReader
    evaluated: Iterable[Sequence[object]]

    @property
    def table(self) -> str:
        """The table's name for consumers."""
        return self.mapped.target.full_name

    def rows(self) -> Iterable[Row]:
        """The rows that pass, mapped."""
        return RowMapper(self.mapped).rows(map(self._with_slots, self.evaluated))

    def _with_slots(self, evaluated: Sequence[object]) -> Row:
        pickled, *results = evaluated
        assert isinstance(pickled, bytes | bytearray)
        row = pickle.loads(pickled)
        if isinstance(row, ChangesourceError):
            raise row
        if isinstance(row, BadRow):
            # Nothing was evaluated for it. `RowMapper.rows` takes it in place of a row.
            return row  # type: ignore[return-value]
        return {**row, **self.reader.read(results)}


def sql_parts(
    session: SparkSession, mapped: MappedTable, tasks: Sequence[bytes], write_part: WritePart
) -> RDD[PartInfo | ChangesourceError]:
    """Return an RDD that writes the parts of one table when it is collected; `tasks` are pickled `PartTask`s.

    Raises `ConfigurationError` for an expression that Spark refuses.
    """
    from pyspark.sql.types import BinaryType, StructField, StructType

    columns, reader = check_sql(session, mapped)
    inputs = SqlInputs(mapped.source)
    schema = StructType([StructField(ROW, BinaryType()), *inputs.schema().fields])
    rows = session.sparkContext.parallelize(tasks, len(tasks)).flatMap(lambda task: read_rows(task, inputs))
    evaluated = session.createDataFrame(rows, schema, verifySchema=False).select(ROW, *columns)

    def write(number: int, rows_of_task: Iterable[Sequence[object]]) -> Iterator[PartInfo | ChangesourceError]:
        task: PartTask = pickle.loads(tasks[number])
        yield write_part(replace(task, partition=EvaluatedPartition(mapped, reader, rows_of_task)))

    return evaluated.rdd.mapPartitionsWithIndex(write)


def read_rows(pickled: bytes, inputs: SqlInputs) -> Iterator[Values]:
    """Yield each row of a task's partition, pickled, and the inputs of its expressions. Runs in a Spark task.

    An error of the adapter is yielded, pickled, instead of a row: `EvaluatedPartition` raises it again, with its code.
    A row with a value that its column does not take is a `BadRow`.
    """
    task: PartTask = pickle.loads(pickled)
    assert isinstance(task.partition, MappedPartition)
    try:
        with adapter_call(f"rows of {inputs.table.full_name}, partition {task.number}"):
            for row in task.partition.source.rows():
                yield _with_inputs(row, inputs)
    except ChangesourceError as error:
        yield pickle.dumps(error), *inputs.values({})


def _with_inputs(row: Row | BadRow, inputs: SqlInputs) -> Values:
    if not isinstance(row, BadRow):
        try:
            return pickle.dumps(row), *inputs.values(row)
        except InvalidChange as error:
            row = BadRow(inputs.table.full_name, row, None, error)
    return pickle.dumps(row), *inputs.values({})
