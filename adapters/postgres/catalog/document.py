"""The catalog as one JSON document: the form in which a schema is announced in the stream.

The queries are those of `reading`, combined into one statement, so that the server itself can make the document inside
the transaction that changes the schema (`capture`). Reading it gives the result that `reading.read_catalog` would have
had at that point.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from adapters.postgres.catalog.reading import (
    COLUMNS,
    INDEXES,
    LEAVES,
    PUBLICATIONS,
    TABLES,
    TYPES,
    CatalogRows,
    check_publications,
)
from adapters.postgres.catalog.table_selection import SelectedTables, TableSelection, select_tables
from changesource_sdk import ConfigurationError, ResyncRequired

_OIDS = "ARRAY(SELECT c0 FROM tables)"
_ROOTS = "ARRAY(SELECT c0 FROM tables WHERE c3 = 'p')"
_USED_TYPES = """ AND t.oid IN (
  WITH RECURSIVE used(oid) AS (
    SELECT c3::oid FROM columns
    UNION SELECT x FROM used JOIN pg_type u ON u.oid = used.oid, unnest(ARRAY[u.typelem, u.typbasetype]) x
  ) SELECT oid FROM used)"""


def _part(name: str, query: str, width: int) -> str:
    columns = ", ".join(f"c{number}" for number in range(width))
    return f"{name}({columns}) AS ({query})"


def _rows(name: str, width: int) -> str:
    columns = ", ".join(f"c{number}" for number in range(width))
    return f"'{name}', (SELECT coalesce(jsonb_agg(jsonb_build_array({columns})), '[]') FROM {name})"


def query(publications: str) -> str:
    """A statement whose result is the document; `publications` is SQL for an array of names."""
    parts = {
        "publications": (PUBLICATIONS.replace("%s", publications), 2),
        "tables": (TABLES.replace("%s", publications), 7),
        "columns": (COLUMNS.replace("%s", _OIDS), 8),
        "indexes": (INDEXES.replace("%s", _OIDS), 10),
        "leaves": (LEAVES.replace("%s", _ROOTS), 2),
        "types": (TYPES + _USED_TYPES, 7),
    }
    bindings = ",\n".join(_part(name, text, width) for name, (text, width) in parts.items())
    fields = ",\n".join(_rows(name, width) for name, (_, width) in parts.items())
    version = "'server_version', current_setting('server_version_num')::int"
    return f"WITH {bindings}\nSELECT jsonb_build_object({fields},\n{version})"


@contextmanager
def publications_needed() -> Iterator[None]:
    """Raise `ResyncRequired` for a publication that was dropped: its changes are missing in the stream."""
    try:
        yield
    except ConfigurationError as error:
        raise ResyncRequired(error.code, error.message, error.where, error.fix) from error


def read_document(text: str | bytes, publications: Sequence[str], selection: TableSelection) -> SelectedTables:
    """The tables of a document that are synced. Raises `ResyncRequired` if a publication was dropped."""
    fields: dict[str, Any] = json.loads(text)
    with publications_needed():
        check_publications(publications, fields.pop("publications"))
    return select_tables(CatalogRows(**fields).stored(), selection)
