"""The polling lane: sources whose `changes` run Spark jobs themselves are followed in the driver, where the session is.

The tail is the one that all lanes run; only its process differs. Mappings in Spark SQL are evaluated on the way, on the
changes of one transaction after the other, in pieces of bounded size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from changesource_sdk.adapter import Change, Position, Snapshot, Table, Transaction, UsingSpark
from changesource_sdk.contract import checked_transactions
from changesource_sdk.pipeline.adapter_factory import opened
from changesource_sdk.pipeline.encoding.logged_schema import LoggedSchema
from changesource_sdk.pipeline.mapped import MappedAdapter
from changesource_sdk.pipeline.mapping.change import ChangeMapper
from changesource_sdk.pipeline.mapping.declare import needs_spark
from changesource_sdk.pipeline.mapping.source import MappedChanges
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.spark.lanes.driver_tail import DriverTail
from changesource_sdk.positions import to_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LANE = "polling"


def is_needed(source: SourceSpec) -> bool:
    """Whether an adapter says that it runs Spark jobs."""
    with opened(source.factory()) as made:
        return isinstance(made, UsingSpark) and made.uses_spark


def follow(tail: DriverTail) -> None:
    """Follow a source until the run stops or a snapshot is due; raises what ended it otherwise."""
    with opened(tail.source.factory()) as made:
        if isinstance(made, MappedAdapter) and needs_spark(made.mappings) is not None:
            tail.append(lambda _: EvaluatedSource(tail.session, made), LANE)
        else:
            tail.append(lambda _: made, LANE)


class EvaluatedSource:
    """A mapped source whose Spark SQL is evaluated here; to the tail it is an adapter."""

    def __init__(self, session: SparkSession, mapped: MappedAdapter) -> None:
        self._session = session
        self._mapped = mapped
        # Made by the first call of `changes`, from the tables at that moment.
        self._evaluation: SqlEvaluation | None = None

    @property
    def poll_interval(self) -> float:
        """The upstream's interval, in seconds."""
        return float(getattr(self._mapped, "poll_interval", 0.05))

    def __getattr__(self, name: str) -> object:
        """How far the upstream is and what is done with bad values, if the adapter says it."""
        if name in ("head", "distance", "on_bad_value"):
            return getattr(self._mapped, name)
        raise AttributeError(name)

    def tables(self) -> Sequence[Table]:
        """The tables as consumers get them."""
        return self._mapped.tables()

    def snapshot(self) -> Snapshot:
        """Return the upstream's snapshot, with mapped partitions."""
        return self._mapped.snapshot()

    def start_from(self, schema: LoggedSchema) -> None:
        """Continue with the schema of the log's head."""
        self._mapped.start_from(schema)

    def upstream_tables(self) -> tuple[Table, ...] | None:
        """The adapter's tables after the change that was read last."""
        return None if self._evaluation is None else self._evaluation.mapper.followed.tables

    def changes(self, after: Position) -> Iterator[Transaction]:
        """Yield the upstream's transactions, mapped."""
        if self._evaluation is None:
            self._evaluation = SqlEvaluation(self._session, self._mapped.change_mapper())
        evaluation = self._evaluation
        evaluation.mapper.followed.give_to(self._mapped.inner)
        for transaction in checked_transactions(self._mapped.inner.changes(after)):
            yield replace(transaction, changes=MappedChanges(evaluation.changes(transaction), evaluation.mapper))

    def acknowledge(self, position: Position) -> None:
        """Passed on."""
        self._mapped.acknowledge(position)

    def close(self) -> None:
        """Passed on."""
        self._mapped.close()


class SqlEvaluation:
    """Evaluates the SQL of mappings on the rows before and after each change."""

    def __init__(self, session: SparkSession, mapper: ChangeMapper) -> None:
        # Python data sources need pyarrow: only sources that use them should.
        from changesource_sdk.pipeline.spark.lanes.micro_batch import tuned
        from changesource_sdk.pipeline.spark.sql.batches import Batches
        from changesource_sdk.pipeline.spark.sql.change_source import StreamRows, stream_schema

        tables = mapper.tables_with_sql()
        self._session = tuned(session)
        self._schema = stream_schema(tables)
        self._rows = StreamRows(tables)
        self._batches = Batches(self._session, tables)
        self.mapper = mapper

    def changes(self, transaction: Transaction) -> Iterator[Change]:
        """The upstream's changes of a transaction, with the results of SQL; `mapper` maps them."""
        from changesource_sdk.pipeline.spark.sql.change_source import pieces

        for piece in pieces(self._rows.of(0, transaction), to_text(transaction.position)):
            frame = self._session.createDataFrame(piece.rows, self._schema, verifySchema=False)
            for evaluated in self._batches.evaluated(frame):
                yield from evaluated.changes
