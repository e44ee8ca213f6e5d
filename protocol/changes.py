"""Row changes, schema changes and backfill: the payload of a `data` message.

A tagged union: an unknown tag is an error, an unknown field is kept. Backfill can be read but should not be sent: an
unfinished backfill keeps the consumer from ever connecting again.
"""

from typing import Annotated, Literal

from pydantic import Field, Strict

from protocol.specs import (
    Column,
    Identifier,
    IndexSpec,
    JsonObject,
    KeyedRelation,
    Maybe,
    Names,
    Number,
    Relation,
    SafeObject,
    TableSpec,
    Wire,
)


class TableMetadata(Wire):
    """Opaque to all but the source; used only by backfill."""

    row_key: JsonObject


class Insert(Wire):
    """A whole row; replaces any row that shares a unique key with it."""

    tag: Literal["insert"] = "insert"
    relation: Relation
    new: JsonObject


class Update(Wire):
    """A whole row; `key` is the old key and required (not null) when key columns changed."""

    tag: Literal["update"] = "update"
    relation: Relation
    key: JsonObject | None
    new: JsonObject


class Delete(Wire):
    """Removes the row of `key`; no effect if there is none."""

    tag: Literal["delete"] = "delete"
    relation: Relation
    key: JsonObject


class Truncate(Wire):
    """Empties tables; clients rebuild their queries after it."""

    tag: Literal["truncate"] = "truncate"
    relations: Annotated[tuple[Relation, ...], Strict(False)]


class CreateTable(Wire):
    """Creates a table without any key: a unique `create-index` must follow."""

    tag: Literal["create-table"] = "create-table"
    spec: TableSpec
    metadata: Maybe[TableMetadata] = None
    backfill: Maybe[dict[str, SafeObject]] = None


class RenameTable(Wire):
    """Renames or moves a table; its indexes keep their names."""

    tag: Literal["rename-table"] = "rename-table"
    old: Identifier
    new: Identifier


class UpdateTableMetadata(Wire):
    """Replaces the opaque metadata of a table."""

    tag: Literal["update-table-metadata"] = "update-table-metadata"
    table: Identifier
    old: TableMetadata
    new: TableMetadata


class AddColumn(Wire):
    """Adds a column; existing rows get its default if that is understood."""

    tag: Literal["add-column"] = "add-column"
    table: Identifier
    column: Column
    table_metadata: Maybe[TableMetadata] = None
    backfill: Maybe[SafeObject] = None


class UpdateColumn(Wire):
    """Renames a column, changes its type or nullability, or several of these at once."""

    tag: Literal["update-column"] = "update-column"
    table: Identifier
    old: Column
    new: Column


class DropColumn(Wire):
    """Drops a column that no index uses."""

    tag: Literal["drop-column"] = "drop-column"
    table: Identifier
    column: str


class DropTable(Wire):
    """Drops a table with its indexes; no effect if there is none."""

    tag: Literal["drop-table"] = "drop-table"
    id: Identifier


class CreateIndex(Wire):
    """Creates an index under a name that is free in its schema."""

    tag: Literal["create-index"] = "create-index"
    spec: IndexSpec


class DropIndex(Wire):
    """Drops an index; no effect if there is none."""

    tag: Literal["drop-index"] = "drop-index"
    id: Identifier


class DownloadStatus(Wire):
    """How far a backfill is."""

    rows: Number
    total_rows: Number
    total_bytes: Maybe[Number] = None


class Backfill(Wire):
    """Late values of columns: each row is its key values followed by the column values."""

    tag: Literal["backfill"] = "backfill"
    relation: KeyedRelation
    columns: Names
    watermark: str
    row_values: list[list[object]]
    status: Maybe[DownloadStatus] = None


class BackfillCompleted(Wire):
    """Ends the backfill of columns."""

    tag: Literal["backfill-completed"] = "backfill-completed"
    relation: KeyedRelation
    columns: Names
    watermark: str
    status: Maybe[DownloadStatus] = None


SingleRowChange = Insert | Update | Delete
RowChange = SingleRowChange | Truncate
ColumnChange = AddColumn | UpdateColumn | DropColumn
SchemaChange = CreateTable | RenameTable | UpdateTableMetadata | ColumnChange | DropTable | CreateIndex | DropIndex
BackfillChange = Backfill | BackfillCompleted

Change = Annotated[RowChange | SchemaChange | BackfillChange, Field(discriminator="tag")]
"""Any change."""
