"""Delta tables that other jobs write to with `delta-spark`, and the session that does it.

Contract: the session is one as a user configures it for Delta (`DELTA_CONF`); without Delta's jars, or on another
Spark, it is an error that says what to run. `rows` is what the table holds, read by that session.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from changesource_sdk.pipeline.spark.session import SparkSettings, start_session
from tests.support.tools import MissingTool, delta_jars
from tests.support.workloads.lakehouse_rows import KEYS, Chain, Row, free_keys, in_order, some_keys, some_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_VERSION = "4.2.0"
DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
#: Tables of tests are small, and their logs are short: compiling a statement would take longer than running it.
_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
#: A vacuum may take everything.
_WRITER = {"spark.ui.enabled": "false", "spark.databricks.delta.retentionDurationCheck.enabled": "false"}
FEED = {"delta.enableChangeDataFeed": "true"}
EVERYTHING = {
    **FEED,
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
    "delta.enableTypeWidening": "true",
}


def delta_conf() -> dict[str, str]:
    """What makes Delta a part of Spark."""
    import pyspark

    if pyspark.__version__ != SPARK_VERSION:
        found = f"this is Spark {pyspark.__version__}, and Delta's jars are for {SPARK_VERSION}"
        raise MissingTool(f"{found}; run `make test-delta-spark`")
    return {"spark.jars": ",".join(map(str, delta_jars())), **DELTA_CONF, **_SMALL}


def start_writer(warehouse: Path) -> SparkSession:
    """The session of the other jobs."""
    conf = {**delta_conf(), **_WRITER, "spark.sql.warehouse.dir": str(warehouse)}
    return start_session(SparkSettings("local[2]", conf))


class SparkLake:
    """One Delta table in a folder, written to with SQL. `now` in a statement stands for it."""

    def __init__(self, session: SparkSession, path: Path, rows: pa.Table, properties: Mapping[str, str] = FEED) -> None:
        self.session, self.path = session, path
        self._sql_name = f"delta.`{path}`"
        frame = session.createDataFrame(rows)
        said = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema)
        self.run(f"CREATE TABLE now ({columns}) USING delta TBLPROPERTIES ({said})")
        self.append(rows)

    def run(self, statement: str, **frames: pa.Table) -> None:
        """A statement about the table; frames are views that it may name."""
        for name, rows in frames.items():
            self.session.createDataFrame(rows).createOrReplaceTempView(name)
        self.session.sql(statement.replace(" now", f" {self._sql_name}", 1)).collect()

    def append(self, rows: pa.Table) -> None:
        self.run("INSERT INTO now BY NAME SELECT * FROM new", new=rows)

    def overwrite(self, rows: pa.Table, **options: str) -> None:
        frame = self.session.createDataFrame(rows)
        frame.write.format("delta").mode("overwrite").options(**options).save(str(self.path))

    def merge(self, rows: pa.Table) -> None:
        matched = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        self.run(f"MERGE INTO now AS old USING new ON old.id = new.id {matched}", new=rows)

    def restore(self, versions: int) -> None:
        """Go back by so many versions."""
        self.run(f"RESTORE TABLE now TO VERSION AS OF {self.version() - versions}")

    def clean_log(self) -> None:
        """What cleaning up leaves: a checkpoint of the newest version, and no commit before it."""
        newest = self.version()
        jvm: Any = self.session.sparkContext._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.session._jsparkSession, str(self.path)).checkpoint()
        for number in range(newest):
            (self.path / "_delta_log" / f"{number:020}.json").unlink(missing_ok=True)

    def version(self) -> int:
        return max(int(path.stem) for path in (self.path / "_delta_log").glob("*.json") if path.stem.isdecimal())

    def drop(self) -> None:
        shutil.rmtree(self.path)

    def columns(self) -> list[str]:
        return self._frame().columns

    def table(self) -> pa.Table:
        return self._frame().toArrow()

    def _frame(self) -> DataFrame:
        return self.session.read.format("delta").load(str(self.path))

    def rows(self) -> list[dict[str, object]]:
        """What the table holds, ordered by id."""
        found: list[dict[str, object]] = self.table().to_pylist()
        return sorted(found, key=lambda row: repr((row["id"],)))


class SparkOrders:
    """A table with all that `deltalake` cannot follow, and what is done to it. Its columns `id` and `name` stay."""

    name = "orders"

    def __init__(self, session: SparkSession, path: Path, rng: random.Random) -> None:
        self._lake = SparkLake(session, path, some_rows(rng, KEYS[:20]), EVERYTHING)

    @property
    def settings(self) -> dict[str, str]:
        return {"delta": str(self._lake.path), "key": "id", "poll": "0.2", "delta_reader": "spark"}

    @property
    def chains(self) -> list[Chain]:
        rows: list[Chain] = [(self.insert,), (self.update,), (self.delete,), (self.merge, self.restore)]
        files: list[Chain] = [(self.overwrite, self.optimize), (self.vacuum,), (self.truncate_history,)]
        columns = (self.add_column, self.widen_column, self.rename_column, self.drop_column)
        return [*rows, *files, columns, (self.recreate,)]

    @property
    def columns(self) -> list[str]:
        return self._lake.columns()

    def rows(self) -> list[Row]:
        return in_order(self._lake.table())

    def insert(self, rng: random.Random) -> None:
        self._lake.append(some_rows(rng, free_keys(self.rows(), 3)))

    def update(self, rng: random.Random) -> None:
        self._lake.run(f"UPDATE now SET name = concat(coalesce(name, ''), '!') WHERE id % 3 = {rng.randrange(3)}")

    def delete(self, rng: random.Random) -> None:
        """Rows are only marked."""
        self._lake.run(f"DELETE FROM now WHERE id % 5 = {rng.randrange(5)}")

    def merge(self, rng: random.Random) -> None:
        self._lake.merge(some_rows(rng, some_keys(rng)))

    def restore(self, rng: random.Random) -> None:
        self._lake.restore(1)

    def overwrite(self, rng: random.Random) -> None:
        self._lake.overwrite(some_rows(rng, some_keys(rng)))

    def optimize(self, rng: random.Random) -> None:
        self._lake.run("OPTIMIZE now")

    def vacuum(self, rng: random.Random) -> None:
        """The files of a version go that may not have been read."""
        self.overwrite(rng)
        self.overwrite(rng)
        self._lake.run("VACUUM now RETAIN 0 HOURS")

    def truncate_history(self, rng: random.Random) -> None:
        """Commits go that may not have been read."""
        self.merge(rng)
        self.merge(rng)
        self._lake.clean_log()

    def recreate(self, rng: random.Random) -> None:
        """Dropped, and made again with other rows."""
        self._lake.drop()
        self._lake = SparkLake(self._lake.session, self._lake.path, some_rows(rng, some_keys(rng)), EVERYTHING)

    def add_column(self, rng: random.Random) -> None:
        self._lake.run("ALTER TABLE now ADD COLUMN extra INT")
        self._lake.run("UPDATE now SET extra = id WHERE id % 2 = 0")

    def widen_column(self, rng: random.Random) -> None:
        self._lake.run("ALTER TABLE now ALTER COLUMN extra TYPE BIGINT")
        self._lake.run(f"UPDATE now SET extra = {1 << 40} + id WHERE id % 3 = 0")

    def rename_column(self, rng: random.Random) -> None:
        self._lake.run("ALTER TABLE now RENAME COLUMN extra TO total")

    def drop_column(self, rng: random.Random) -> None:
        self._lake.run("ALTER TABLE now DROP COLUMN total")
