"""The replica's catalog: tables, columns and indexes, and the SQL of each schema change. Pure.

The writer applies every schema change to the catalog, runs the returned statements, and stores the catalog with the
data in the same transaction. Declared column types only determine SQLite's affinity; the type that clients see comes
from the column's spec, which is stored here.

Contract: a change that does not fit (an unknown table, a name in use) raises `CannotApply` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from protocol import changes as wire
from protocol.fold.indexes import FoldedIndex, Indexes, renamed
from protocol.specs import VERSION_COLUMN, ColumnSpec, IndexSpec, sql_default
from reference_cache.replica.errors import CannotApply
from service_kit.sqlite import quoted

SYSTEM_PREFIX = "_cache."
"""Prefix of every name in the file that does not come from upstream."""

_REBUILT = SYSTEM_PREFIX + "rebuilt"


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table by its name in the replica.

    `unfilled` columns are still being backfilled and invisible to queries. `defaults` has the SQL literal for a column
    that a row omits, for columns that were added with a default.
    """

    name: str
    columns: Mapping[str, ColumnSpec]
    unfilled: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Effect:
    """What a schema change requires: statements to run in order, and `tables` whose shape has changed.

    Rows of `rewritten` tables are different for clients, so they get the version of the change.
    """

    statements: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()


# Not a `protocol.fold.tables.TableFold`: it refuses changes that do not fit, and each change yields SQL that needs the
# table before and after. What they share is in `protocol.fold.indexes`.
@dataclass(slots=True)
class Catalog:
    """Tables and indexes by name. Invariant: every index belongs to a table here and names columns of it."""

    # Both are in order of creation, and written by `apply` and `filled`.
    tables: dict[str, StoredTable] = field(default_factory=dict)
    # Tables and indexes share one set of names, as in SQLite.
    indexes: Indexes = field(default_factory=Indexes)

    def copy(self) -> Catalog:
        return Catalog(dict(self.tables), Indexes(self.indexes))

    def table(self, name: str) -> StoredTable:
        """Raises `CannotApply` for an unknown table."""
        table = self.tables.get(name)
        if table is None:
            raise CannotApply(f"there is no table {name!r}; the source must create it before it names it")
        return table

    def keys_of(self, table: str) -> list[tuple[str, ...]]:
        """The column names of every unique index over non-null columns, shortest first: the first is the key."""
        columns = self.tables[table].columns
        unique = [tuple(index.columns) for index in self.indexes.of(table) if index.unique]
        usable = {names for names in unique if all(_can_be_key(columns.get(name)) for name in names)}
        return sorted(usable, key=lambda names: (len(names), names))

    def apply(self, change: wire.SchemaChange) -> Effect:
        """Apply a schema change to the catalog; returns what to do in the database."""
        match change:
            case wire.CreateTable():
                return self._create_table(change)
            case wire.RenameTable():
                return self._rename_table(change.old.replica_name, change.new.replica_name)
            case wire.DropTable():
                return self._drop_table(change.id.replica_name)
            case wire.AddColumn():
                return self._add_column(change)
            case wire.UpdateColumn():
                return self._update_column(change)
            case wire.DropColumn():
                return self._drop_column(change.table.replica_name, change.column)
            case wire.CreateIndex():
                return self._create_index(change.spec)
            case wire.DropIndex():
                return self._drop_index(change.id.replica_name)
            case wire.UpdateTableMetadata():
                return Effect()

    def filled(self, table: str, columns: Iterable[str]) -> Effect:
        """Make backfilled columns visible."""
        stored = self.table(table)
        self.tables[table] = replace(stored, unfilled=stored.unfilled - frozenset(columns))
        return Effect(tables=(table,), rewritten=(table,))

    def _create_table(self, change: wire.CreateTable) -> Effect:
        spec = change.spec
        name = spec.replica_name
        self._refuse_taken(name)
        ordered = dict(sorted(spec.columns.items(), key=lambda item: item[1].pos))
        if VERSION_COLUMN in ordered:
            raise CannotApply(f"table {name!r} has a column {VERSION_COLUMN}, which is the cache's own; leave it out")
        unfilled = frozenset(change.backfill or ())
        self.tables[name] = stored = StoredTable(name, ordered, unfilled)
        return Effect((create_table_sql(stored),), (name,))

    def _rename_table(self, old: str, new: str) -> Effect:
        stored = self.table(old)
        self._refuse_taken(new)
        self.tables = renamed(self.tables, old, new) | {new: replace(stored, name=new)}
        self.indexes.rename_table(old, new)
        return Effect((f"ALTER TABLE {quoted(old)} RENAME TO {quoted(new)}",), (old, new), (new,))

    def _drop_table(self, name: str) -> Effect:
        if name not in self.tables:
            return Effect()
        del self.tables[name]
        self.indexes.drop_table(name)
        return Effect((f"DROP TABLE {quoted(name)}",), (name,))

    def _add_column(self, change: wire.AddColumn) -> Effect:
        table, column = change.table.replica_name, change.column
        stored = self.table(table)
        if column.name in stored.columns or column.name == VERSION_COLUMN:
            raise CannotApply(f"table {table!r} has a column {column.name!r} already")
        unfilled = stored.unfilled if change.backfill is None else stored.unfilled | {column.name}
        columns = {**stored.columns, column.name: column.spec}
        default = _default(column.spec)
        defaults = stored.defaults if default is None else {**stored.defaults, column.name: default}
        self.tables[table] = replace(stored, columns=columns, unfilled=unfilled, defaults=defaults)
        text = f"ALTER TABLE {quoted(table)} ADD {_column_sql(column.name, column.spec, default)}"
        return Effect((text,), (table,), () if change.backfill is not None else (table,))

    def _update_column(self, change: wire.UpdateColumn) -> Effect:
        table, old, new = change.table.replica_name, change.old.name, change.new.name
        stored = self.table(table)
        before = _column_of(stored, old)
        if new != old and new in stored.columns:
            raise CannotApply(f"table {table!r} has a column {new!r} already")
        columns = renamed(stored.columns, old, new) | {new: change.new.spec}
        unfilled = frozenset(new if name == old else name for name in stored.unfilled)
        defaults = renamed(stored.defaults, old, new)
        self.tables[table] = replace(stored, columns=columns, unfilled=unfilled, defaults=defaults)
        self.indexes.rename_column(table, old, new)
        if affinity(before) != affinity(change.new.spec):
            return Effect(tuple(self._rebuild(stored, table)), (table,), (table,))
        if old != new:
            text = f"ALTER TABLE {quoted(table)} RENAME COLUMN {quoted(old)} TO {quoted(new)}"
            return Effect((text,), (table,), (table,))
        return Effect((), (table,), () if before.data_type == change.new.spec.data_type else (table,))

    def _rebuild(self, before: StoredTable, table: str) -> Iterable[str]:
        """Statements that copy the rows into a new table; the column's new affinity converts its values."""
        after = self.tables[table]
        yield create_table_sql(replace(after, name=_REBUILT))
        into = _names([*after.columns, VERSION_COLUMN])
        yield f"INSERT INTO {quoted(_REBUILT)} ({into}) SELECT {_names([*before.columns, VERSION_COLUMN])} " + (
            f"FROM {quoted(table)} ORDER BY rowid"
        )
        yield f"DROP TABLE {quoted(table)}"
        yield f"ALTER TABLE {quoted(_REBUILT)} RENAME TO {quoted(table)}"
        yield from map(create_index_sql, self.indexes.of(table))

    def _drop_column(self, table: str, column: str) -> Effect:
        stored = self.table(table)
        _column_of(stored, column)
        users = [index.name for index in self.indexes.of(table) if column in index.columns]
        if users:
            raise CannotApply(f"{table}.{column} is used by the index {users[0]!r}; drop the index first")
        columns = {name: spec for name, spec in stored.columns.items() if name != column}
        defaults = {name: text for name, text in stored.defaults.items() if name != column}
        unfilled = stored.unfilled - {column}
        self.tables[table] = replace(stored, columns=columns, unfilled=unfilled, defaults=defaults)
        return Effect((f"ALTER TABLE {quoted(table)} DROP COLUMN {quoted(column)}",), (table,), (table,))

    def _create_index(self, spec: IndexSpec) -> Effect:
        name, table = spec.replica_name, spec.replica_table
        stored = self.table(table)
        self._refuse_taken(name)
        for column in spec.columns:
            _column_of(stored, column)
        return Effect((create_index_sql(self.indexes.create(spec)),), (table,))

    def _drop_index(self, name: str) -> Effect:
        index = self.indexes.drop(name)
        return Effect() if index is None else Effect((f"DROP INDEX {quoted(name)}",), (index.table,))

    def _refuse_taken(self, name: str) -> None:
        if name in self.tables or name in self.indexes:
            raise CannotApply(f"the name {name!r} is taken; tables and indexes share one set of names")
        if name.startswith((SYSTEM_PREFIX, "sqlite_")):
            raise CannotApply(f"the name {name!r} is reserved; rename the table or index at the source")


def create_table_sql(table: StoredTable) -> str:
    """CREATE TABLE without any key; unique indexes are created separately."""
    parts = [_column_sql(name, spec, table.defaults.get(name)) for name, spec in table.columns.items()]
    return f"CREATE TABLE {quoted(table.name)} ({', '.join([*parts, f'{quoted(VERSION_COLUMN)} TEXT'])})"


def create_index_sql(index: FoldedIndex) -> str:
    columns = ", ".join(f"{quoted(name)} {order}" for name, order in index.columns.items())
    unique = "UNIQUE " if index.unique else ""
    return f"CREATE {unique}INDEX {quoted(index.name)} ON {quoted(index.table)} ({columns})"


def affinity(spec: ColumnSpec) -> str:
    """The declared type. REAL only for upstream floats: elsewhere it would turn whole numbers into floats."""
    match spec.value_kind:
        case "integer" | "boolean":
            return "INTEGER"
        case "number":
            floats = ("real", "float", "float4", "float8", "double precision")
            return "REAL" if spec.data_type.lower().partition("(")[0] in floats else "NUMERIC"
        case "unsynced":
            return "BLOB"
        case _:
            return "TEXT"


def _column_sql(name: str, spec: ColumnSpec, default: str | None) -> str:
    return f"{quoted(name)} {affinity(spec)}" + ("" if default is None else f" DEFAULT {default}")


def _default(spec: ColumnSpec) -> str | None:
    try:
        return sql_default(spec.dflt)
    except ValueError as error:
        raise CannotApply(str(error)) from None


def _column_of(table: StoredTable, name: str) -> ColumnSpec:
    spec = table.columns.get(name)
    if spec is None:
        raise CannotApply(f"table {table.name!r} has no column {name!r}; it has {', '.join(table.columns)}")
    return spec


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def _can_be_key(column: ColumnSpec | None) -> bool:
    return column is not None and bool(column.not_null) and column.zql_type in ("string", "number", "boolean")
