"""A Spark SQL query over other tables as one table.

The query may name the other tables of the settings, files (parquet.`/lake/items`) and whatever the session's catalogs
have. Names of the settings come first: they are temporary views, created again for each poll so that Spark lists their
files again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.spark_tables.readers.contract import TableReader, reading
from adapters.spark_tables.readers.files_and_jdbc import BEING_WRITTEN, FolderReader
from adapters.spark_tables.settings import KINDS, TableSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RELATION = re.compile(r"'UnresolvedRelation \[([^\]]*)\]")
_COMMON = re.compile(r"\bCTE \[([^\]]*)\]")
_RESTLESS = re.compile(r"\b(?:current_\w+|now|rand|randn|random|uuid|localtimestamp|unix_timestamp|curdate)\b", re.I)
_FILE_KINDS = ("parquet", "orc", "csv", "json")


@dataclass(frozen=True, slots=True)
class QueryReader:
    """A query; `others` reads the tables of the settings that it may name."""

    table: TableSettings
    others: Mapping[str, TableReader]

    def fingerprint(self, session: SparkSession) -> str | None:
        """A digest of those of all tables it reads; None if one has none or the query is not deterministic."""
        if _RESTLESS.search(self.table.location):
            return None
        fingerprints = [self._fingerprint_of(session, name) for name in self._names(session)]
        if None in fingerprints:
            return None
        if BEING_WRITTEN in fingerprints:
            return BEING_WRITTEN
        return hashlib.sha256("\n".join(map(str, fingerprints)).encode()).hexdigest()

    def frame(self, session: SparkSession) -> DataFrame:
        """What the query gives now."""
        for name in self._names(session):
            if name in self.others:
                self.others[name].frame(session).createOrReplaceTempView(_quoted(name))
        with reading(self.table):
            return session.sql(self.table.location)

    def _fingerprint_of(self, session: SparkSession, name: str) -> str | None:
        if name in self.others:
            return self.others[name].fingerprint(session)
        kind, _, path = name.partition(".")
        if kind not in _FILE_KINDS or kind not in KINDS or not path:
            return None
        return FolderReader(TableSettings(self.table.name, kind, path, self.table.key)).fingerprint(session)

    def _names(self, session: SparkSession) -> list[str]:
        """The tables that the query names, as they are written; its own `WITH` tables are none."""
        with reading(self.table):
            parser = session._jsparkSession.sessionState().sqlParser()
            plan = parser.parsePlan(self.table.location).toString()
        named = {".".join(part.strip() for part in parts.split(",")) for parts in _RELATION.findall(plan)}
        return sorted(named - set(_parts(_COMMON.findall(plan))))


def _parts(lists: Iterable[str]) -> Iterable[str]:
    return (part.strip() for names in lists for part in names.split(","))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
