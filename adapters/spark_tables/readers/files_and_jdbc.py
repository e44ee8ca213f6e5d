"""Readers for folders of files and for databases behind JDBC.

A folder's fingerprint is the listing of its files. While another job writes to it (`_temporary` is there, or the files
are gone and nothing says that this is the result) the folder looks as it did: half a table is no version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adapters.spark_tables.readers.contract import reading
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA_OPTION = "schema"
BEING_WRITTEN = "being written"
_GLOB = frozenset("*?[{")
_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "csv": {"header": "true", "inferSchema": "true", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}


@dataclass(frozen=True, slots=True)
class FolderReader:
    """Files of one format, in a folder or one by itself. The option `schema` says the columns instead of the files."""

    table: TableSettings

    def fingerprint(self, session: SparkSession) -> str | None:
        """A digest of names, sizes and times."""
        if _GLOB & set(self.table.location):
            return None
        with reading(self.table):
            files = list_files(session, self.table.location)
        if files is None:
            raise missing(self.table.name, self.table.location)
        names = [path.rpartition("/")[2] for path in files]
        data = [path for path, name in zip(files, names, strict=True) if not name.startswith(("_", "."))]
        if any("/_temporary/" in path for path in files) or (not data and "_SUCCESS" not in names):
            return BEING_WRITTEN
        return hashlib.sha256("\n".join(sorted(f"{path} {files[path]}" for path in data)).encode()).hexdigest()

    def frame(self, session: SparkSession) -> DataFrame:
        """The rows of all files."""
        options = {**_DEFAULTS[self.table.kind], **self.table.options}
        schema = options.pop(SCHEMA_OPTION, None)
        with reading(self.table):
            reader = session.read.format(self.table.kind).options(**options)
            return (reader.schema(schema) if schema else reader).load(self.table.location)


@dataclass(frozen=True, slots=True)
class JdbcReader:
    """A table or query of a database; options are those of Spark's JDBC source. One connection reads it unless
    partitioning is asked for, so that what is read is one state of the table.
    """

    table: TableSettings

    def fingerprint(self, session: SparkSession) -> str | None:
        """None: a database has no such mark."""
        return None

    def frame(self, session: SparkSession) -> DataFrame:
        """The rows that the database gives."""
        options = dict(self.table.options)
        if "query" not in options:
            options.setdefault("dbtable", self.table.name)
        with reading(self.table):
            return session.read.format("jdbc").options(url=self.table.location, **options).load()


def list_files(session: SparkSession, location: str) -> dict[str, str] | None:
    """All files below a location, with their size and time; None if the location does not exist.

    Uses Spark's file system, with its credentials.
    """
    jvm: Any = session.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    files = path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
    if not files.exists(path):
        return None
    marks: dict[str, str] = {}
    listing = files.listFiles(path, True)
    while listing.hasNext():
        file = listing.next()
        marks[str(file.getPath().toString())] = f"{file.getLen()} {file.getModificationTime()}"
    return marks
