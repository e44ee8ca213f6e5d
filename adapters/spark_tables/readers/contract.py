"""What a difference asks of a table: its rows now, and whether it may have changed since the last look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import missing
from changesource_sdk import AdapterError, ChangesourceError
from changesource_sdk.toolkit import gist_of_spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MISSING = re.compile(r"\[(?:PATH_NOT_FOUND|TABLE_OR_VIEW_NOT_FOUND|UNABLE_TO_INFER_SCHEMA)\b|FileNotFoundException")
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.*?)(?=^\s+(?:at |\.\.\. \d)|\Z)", re.DOTALL | re.MULTILINE)
_PYTHON = re.compile(
    r"Traceback \(most recent call last\):.*\n\S+?(?:Error|Exception): (.*?)\s*(?:\n\tat |\Z)", re.DOTALL
)
"""What a Python worker raised: the last line of its trace."""
_LONGEST_MESSAGE = 1000


class TableReader(Protocol):
    """Reads one table that has no change feed. Raises `TableMissing` if it does not exist."""

    def fingerprint(self, session: SparkSession) -> str | None:
        """Differs from the last one if the table may have changed; None if the table has no such mark. Cheap.

        It is read before `frame`, so that a change between the two causes one more comparison and is not missed.
        """

    def frame(self, session: SparkSession) -> DataFrame:
        """The current rows."""


@contextmanager
def reading(table: TableSettings) -> Iterator[None]:
    """Raise Spark's errors as an `AdapterError` with the table and a fix."""
    try:
        yield
    except ChangesourceError:
        raise
    except Exception as error:
        raise _explained(table, error) from error


def _explained(table: TableSettings, error: Exception) -> AdapterError:
    text = str(error)
    # Delta's log says by itself whether there is a table: a file that is missing is one of a table that is there.
    if table.kind not in ("query", "delta") and _MISSING.search(text):
        return missing(table.name, table.location)
    if table.kind == "jdbc" and ("No suitable driver" in text or "ClassNotFoundException" in text):
        fix = (
            "add the database's driver: --conf spark.jars.packages=org.postgresql:postgresql:42.7.4, or --conf "
            "spark.jars=/path/driver.jar; some need options.driver, the name of its class, too"
        )
        return AdapterError("driver-missing", "Spark has no JDBC driver for the URL", table.where, fix)
    if table.kind == "query":
        fix = f"correct tables.{table.name}.query; run it in spark-sql to see what it gives"
        return AdapterError("bad-query", gist_of_spark_error(text), table.where, fix)
    fix = "see that its files are there, whole, and may be read; the table is tried again with a growing delay"
    return AdapterError("table-unreadable", _with_causes(error), table.where, fix)


def _with_causes(error: Exception) -> str:
    """What Spark says, and what it says led to it: the file is named by the one, the bad value by the other."""
    if trace := _PYTHON.search(str(error)):
        return trace[1].strip()[:_LONGEST_MESSAGE]
    causes = _CAUSE.findall(f"{error}\n{getattr(error, '_stackTrace', '')}")
    return ": ".join(dict.fromkeys(map(gist_of_spark_error, (str(error), *causes))))[:_LONGEST_MESSAGE]
