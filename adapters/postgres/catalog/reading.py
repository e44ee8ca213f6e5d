"""Reads what is published, as the transaction of a connection sees it.

A fixed number of queries reads tables, columns, indexes and types, however many tables there are. `table_selection`
decides which of them can be synced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from adapters.postgres.catalog.table_selection import (
    PublishedColumn,
    PublishedIndex,
    PublishedSchema,
    PublishedTable,
    SelectedTables,
    TableSelection,
    select_tables,
)
from adapters.postgres.connection import Connection
from adapters.postgres.types import PgType
from changesource_sdk import ConfigurationError

GENERATED_PUBLISHED_FROM = 180_000
"""The first server version whose stream has generated columns."""

PUBLICATIONS = """
SELECT pubname, pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication WHERE pubname = ANY(%s)"""

TABLES = """
SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relreplident::text,
  array_agg(array_to_string(p.attnames, E'\\x01') ORDER BY p.pubname),
  array_agg(p.rowfilter ORDER BY p.pubname)
FROM pg_publication_tables p
JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
WHERE p.pubname = ANY(%s)
GROUP BY 1, 2, 3, 4, 5 ORDER BY n.nspname, c.relname"""

COLUMNS = """
SELECT a.attrelid::int8, a.attnum, a.attname, a.atttypid::int8, a.atttypmod, a.attnotnull, a.attgenerated::text,
  pg_get_expr(d.adbin, d.adrelid)
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum"""

INDEXES = """
SELECT i.indrelid::int8, i.indexrelid::int8, c.relname, i.indisunique, i.indisprimary, i.indisreplident,
  i.indimmediate, i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL,
  (i.indkey::int2[])[:i.indnkeyatts - 1], (i.indoption::int2[])[:i.indnkeyatts - 1]
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.contype = 'x'
WHERE i.indrelid = ANY(%s::oid[]) AND i.indislive AND k.oid IS NULL ORDER BY c.relname"""

LEAVES = """
SELECT r.root::int8, c.oid::int8
FROM unnest(%s::oid[]) AS r(root), pg_partition_tree(r.root) t JOIN pg_class c ON c.oid = t.relid
WHERE t.isleaf AND c.relkind = 'r' ORDER BY 1, 2"""

TYPES = """
SELECT t.oid::int8, t.typname, n.nspname, t.typtype::text,
  CASE WHEN t.typcategory = 'A' THEN t.typelem::int8 ELSE 0 END, t.typbasetype::int8, t.typtypmod
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.typtype <> 'p'"""


Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class CatalogRows:
    """The results of the queries above, read by `read_catalog` or from a document."""

    tables: Rows
    columns: Rows
    indexes: Rows
    leaves: Rows
    types: Rows
    server_version: int

    def stored(self) -> PublishedSchema:
        columns, indexes, leaves = _columns(self.columns), _indexes(self.indexes), _leaves(self.leaves)
        tables = [
            PublishedTable(
                oid=row[0],
                schema=row[1],
                name=row[2],
                kind=row[3],
                identity=row[4],
                listed=tuple(frozenset((text or "").split("\x01")) for text in row[5]),
                filters=tuple(row[6]),
                columns=tuple(columns.get(row[0], ())),
                indexes=tuple(indexes.get(row[0], ())),
                partitions=tuple(leaves.get(row[0], ())),
            )
            for row in self.tables
        ]
        types = {row[0]: PgType(*row) for row in self.types}
        return PublishedSchema(tuple(tables), types, self.server_version >= GENERATED_PUBLISHED_FROM)


def read_catalog(db: Connection, publications: Sequence[str], selection: TableSelection) -> SelectedTables:
    """The synced tables of these publications.

    Raises `ConfigurationError` if a publication is missing or incomplete.
    """
    names = list(publications)
    check_publications(names, db.execute(PUBLICATIONS, [names]).fetchall())
    tables = db.execute(TABLES, [names]).fetchall()
    oids, roots = [row[0] for row in tables], [row[0] for row in tables if row[3] == "p"]
    published = CatalogRows(
        tables,
        db.execute(COLUMNS, [oids]).fetchall(),
        db.execute(INDEXES, [oids]).fetchall(),
        db.execute(LEAVES, [roots]).fetchall(),
        db.execute(TYPES).fetchall(),
        db.info.server_version,
    )
    return select_tables(published.stored(), selection)


def check_publications(names: Sequence[str], answer: Rows) -> None:
    """Raise unless these publications exist and publish all kinds of changes; `answer` is that to `PUBLICATIONS`."""
    is_complete = {str(name): bool(complete) for name, complete in answer}
    for name in names:
        if name not in is_complete:
            raise ConfigurationError(
                "no-such-publication",
                f"there is no publication {name}",
                where="publication",
                fix=f"CREATE PUBLICATION {name} FOR ALL TABLES; or correct the setting `publication`",
            )
        if not is_complete[name]:
            raise ConfigurationError(
                "publication-incomplete",
                f"publication {name} leaves out some kinds of changes, so replicas would go stale",
                where="publication",
                fix=f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate');",
            )


def _columns(rows: Rows) -> dict[int, list[PublishedColumn]]:
    by_table: dict[int, list[PublishedColumn]] = {}
    for table, *fields in rows:
        by_table.setdefault(table, []).append(PublishedColumn(*fields))
    return by_table


def _indexes(rows: Rows) -> dict[int, list[PublishedIndex]]:
    by_table: dict[int, list[PublishedIndex]] = {}
    for table, *plain, columns, options in rows:
        described: list[Any] = [*plain, tuple(columns), tuple(bool(option & 1) for option in options)]
        by_table.setdefault(table, []).append(PublishedIndex(*described))
    return by_table


def _leaves(rows: Rows) -> dict[int, list[int]]:
    by_table: dict[int, list[int]] = {}
    for root, leaf in rows:
        by_table.setdefault(root, []).append(leaf)
    return by_table
