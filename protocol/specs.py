"""Table, column, index and row-key descriptions, as they travel.

Models are frozen and strict (the official peer does not convert either); unknown fields pass and are kept. Field names
are Python's, wire names are camel case; `schema` is called `schema_name` because the model base class takes that name.
"""

import re
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    SerializerFunctionWrapHandler,
    Strict,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from protocol.data_types import SAFE_INTEGER, ValueKind, ZqlType, value_kind, zql_type

_T = TypeVar("_T")

RESERVED_TABLES = ("_zero.", "sqlite_", "_litestream_")
"""Prefixes of names that a consumer keeps for tables of its own, in lower case."""

JsonObject = dict[str, object]
"""A JSON object; its values come from a JSON decoder or go to an encoder, which refuses what JSON cannot say."""

Names = Annotated[tuple[str, ...], Strict(False)]
"""A JSON array of names."""

VERSION_COLUMN = "_0_version"
"""A column that every replica, zero-cache's and ours, adds to each table: the version of the row's last change."""

FROM_WIRE = "from wire"
"""Validation context of what arrived as JSON, where null and absent are not the same."""


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("Input should be a number")
    if isinstance(value, int) and abs(value) > SAFE_INTEGER:
        raise ValueError("Input should be at most 2**53 - 1")
    return value


def _not_null(value: object, info: ValidationInfo) -> object:
    if value is None and info.context == FROM_WIRE:
        raise ValueError("Input should not be null; leave the field out")
    return value


def _no_big_integers(value: JsonObject) -> JsonObject:
    pending: list[object] = [value]
    while pending:
        match pending.pop():
            case dict() as members:
                pending.extend(members.values())
            case list() as items:
                pending.extend(items)
            case int() as number:
                _number(int(number))
            case _:
                pass
    return value


Number = Annotated[int | float, PlainValidator(_number)]
"""A number outside of rows: stays int or float as it came, and the consumer takes no large integers here."""

SafeObject = Annotated[JsonObject, AfterValidator(_no_big_integers)]
"""An object outside of rows, with the same limit on its integers."""

Maybe = Annotated[_T | None, BeforeValidator(_not_null)]
"""A field that may be absent but not null in JSON; in Python None stands for absent."""

TypeClass = Literal["b", "c", "d", "e", "p", "r", "m"]
KeyType = Literal["default", "nothing", "full", "index"]

_NUMERIC_DEFAULT = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_TEXT_DEFAULT = re.compile(r"('(?:[^'\r\n\u2028\u2029]|'')*')::\w+", re.ASCII)
_EMPTY_ARRAY_DEFAULT = re.compile(r"'\{\}'::\w+\[\]", re.ASCII)
_EMPTY_ARRAY_CONSTRUCTOR = re.compile(r"ARRAY\s*\[\s*\]::\w+\[\]", re.ASCII | re.IGNORECASE)


class Wire(BaseModel):
    """Base of everything that travels: an optional field that is None does not appear in the JSON."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="allow",
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
        # A process that only hands on encoded frames never needs most of the validators, and each takes a millisecond.
        defer_build=True,
    )

    @model_serializer(mode="wrap")
    def _omit_what_is_absent(self, handler: SerializerFunctionWrapHandler) -> JsonObject:
        data: JsonObject = handler(self)
        for name, field in type(self).model_fields.items():
            if field.default is None and getattr(self, name) is None:
                del data[field.alias or name]
        return data

    def to_json(self) -> JsonObject:
        """The JSON object of this model, as Python values."""
        return self.model_dump()


def replica_name(schema_name: str, name: str) -> str:
    """The name of a table or index in the replica, which is also how clients address the table."""
    return name if schema_name == "public" else f"{schema_name}.{name}"


class Identifier(Wire):
    """The name of a table or an index within its schema."""

    schema_name: str = Field(alias="schema")
    name: str

    @property
    def replica_name(self) -> str:
        """Its name in the replica."""
        return replica_name(self.schema_name, self.name)


class ColumnSpec(Wire):
    """One column. `pos` only orders the columns; `not_null` decides whether a unique index can be a key."""

    pos: Number
    data_type: str
    not_null: bool | None = None
    dflt: str | None = None
    character_maximum_length: Number | None = None
    pg_type_class: Maybe[TypeClass] = None
    elem_pg_type_class: TypeClass | None = None

    @property
    def is_enum(self) -> bool:
        """Whether values (or elements) are those of an enum."""
        return (self.elem_pg_type_class or self.pg_type_class) == "e"

    @property
    def is_array(self) -> bool:
        """Whether values are arrays."""
        return self.elem_pg_type_class is not None

    @property
    def value_kind(self) -> ValueKind:
        """How its values travel."""
        return value_kind(self.data_type, is_enum=self.is_enum, is_array=self.is_array)

    @property
    def zql_type(self) -> ZqlType | None:
        """The type clients see; None if the column is not synced."""
        return zql_type(self.data_type, is_enum=self.is_enum, is_array=self.is_array)


class Column(Wire):
    """A column with its name, as schema changes carry it."""

    name: str
    spec: ColumnSpec


class TableSpec(Identifier):
    """A table. `primary_key` is information only: a unique index over not-null columns is what makes a key."""

    columns: dict[str, ColumnSpec]
    primary_key: Maybe[Names] = None


class IndexSpec(Identifier):
    """An index; the order of `columns` counts. Its name is unique in its schema, across tables and table names."""

    table_name: str
    unique: bool
    columns: dict[str, Literal["ASC", "DESC"]]

    @property
    def replica_table(self) -> str:
        """The name of its table in the replica."""
        return replica_name(self.schema_name, self.table_name)


class RowKey(Wire):
    """The columns that identify a row; with type `full` the consumer picks the key from a unique index instead."""

    columns: Names
    type: Maybe[KeyType] = None


class KeyedRelation(Identifier):
    """A table and its key, in the newer form only."""

    row_key: RowKey


class Relation(Identifier):
    """The table of a row change. Holds a key: `row_key`, or the older `key_columns` with `replica_identity`."""

    row_key: Maybe[RowKey] = None
    key_columns: Maybe[Names] = None
    replica_identity: Maybe[KeyType] = None

    @model_validator(mode="after")
    def _has_a_key(self) -> Self:
        if self.row_key is None and self.key_columns is None:
            raise ValueError("rowKey is missing (and so is its older form, keyColumns)")
        return self

    @property
    def key(self) -> RowKey:
        """The key, in the newer form."""
        return self.row_key or RowKey(columns=self.key_columns or (), type=self.replica_identity)


def sql_default(text: str | None) -> str | None:
    """The SQLite literal that zero-cache translates a column default to; ValueError if it does not understand it."""
    if not text:
        return None
    if _NUMERIC_DEFAULT.fullmatch(text):
        return text
    if text in ("true", "false"):
        return "1" if text == "true" else "0"
    if quoted := _TEXT_DEFAULT.fullmatch(text):
        return quoted[1]
    if _EMPTY_ARRAY_DEFAULT.fullmatch(text) or _EMPTY_ARRAY_CONSTRUCTOR.fullmatch(text):
        return "'[]'"
    raise ValueError(f"default {text!r} is not understood: use a number, true, false, 'text'::type or '{{}}'::type[]")


def understood_default(text: str | None) -> bool:
    """Whether `add-column` may carry this default; any other stops the consumer for good."""
    try:
        sql_default(text)
    except ValueError:
        return False
    return True
