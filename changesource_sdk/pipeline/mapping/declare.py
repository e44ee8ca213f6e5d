"""Table mappings as they are declared: in TOML under `[mapping.<table>]`, or in Python as `TableMapping`s.

A mapping says how a table of the upstream appears to consumers: under another name, with fewer, renamed, masked or
computed columns, and with the rows that pass a filter. This module has the declarations and parses them from TOML;
`mapping.table` applies a mapping to a table, `mapping.row` to rows and `mapping.change` to changes. Mappings are
pickled for Spark tasks, so a function must be an import path or be defined at the top level of a module.

Expressions are Python functions of a row (they run in every lane) or Spark SQL over the upstream's columns (they run
in the snapshot and micro-batch lanes). Every error names the configuration key that is wrong, such as
`mapping.person.columns.email`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from changesource_sdk.errors import ConfigurationError
from service_kit.suggestions import nearest

MaskName = Literal["null", "redact", "hash"]
MASKS: tuple[str, ...] = get_args(MaskName)


@dataclass(frozen=True, slots=True)
class Function:
    """A Python function of a row: `module:name`, or the function itself."""

    function: str | Callable[..., object]

    def load(self, key: str) -> Callable[..., object]:
        """Import and return the function; raises `ConfigurationError` for `key` if there is none."""
        if not isinstance(self.function, str):
            return self.function
        module, _, name = self.function.partition(":")
        try:
            loaded = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise wrong(key, f"cannot load the function {self.function!r}: {error}", "give it as module:name") from None
        if not callable(loaded):
            raise wrong(key, f"{self.function!r} is not a function", "name a function of one argument, the row")
        function: Callable[..., object] = loaded
        return function


@dataclass(frozen=True, slots=True)
class Sql:
    """A Spark SQL expression over the columns of the upstream's table, under their upstream names."""

    sql: str


@dataclass(frozen=True, slots=True)
class Mask:
    """Replaces a value by null, by `***` (`redact`) or by its SHA-256 in hex (`hash`). Null stays null."""

    mask: MaskName


Expression: TypeAlias = Function | Sql | Mask


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """How a column is computed.

    `type` and `optional` default to those of the upstream's column that it replaces. A new column needs a type, and is
    optional unless said otherwise.
    """

    expression: Expression
    type: str | None = None
    optional: bool | None = None


@dataclass(frozen=True, slots=True)
class TableMapping:
    """How one table appears to consumers.

    `name` is its new name. `select` and `rename` use the upstream's column names; the keys of `columns` are the
    consumers' names. Increase `version` when a function changes its results, so that a new snapshot is taken.
    """

    name: str | None = None
    select: Sequence[str] | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    filter: Function | Sql | None = None
    columns: Mapping[str, MappedColumn] = field(default_factory=dict)
    version: int = 1

    def name_of(self, column: str) -> str | None:
        """Return the consumers' name of an upstream's column; None if they do not get it."""
        if self.select is not None and column not in self.select:
            return None
        return self.rename.get(column, column)

    @property
    def expressions(self) -> dict[str, Expression]:
        """Every expression by its key in the mapping."""
        expressions: dict[str, Expression] = {} if self.filter is None else {"filter": self.filter}
        return expressions | {f"columns.{name}": column.expression for name, column in self.columns.items()}

    @property
    def sql(self) -> dict[str, str]:
        """The Spark SQL expressions by their key in the mapping."""
        return {key: each.sql for key, each in self.expressions.items() if isinstance(each, Sql)}


Mappings: TypeAlias = Mapping[str, TableMapping]
"""Mappings by the name of the upstream's table."""


def wrong(key: str, message: str, fix: str) -> ConfigurationError:
    """The error for a mapping that cannot be used; `key` is its key in the configuration."""
    return ConfigurationError("bad-mapping", message, where=key, fix=fix)


def needs_spark(mappings: Mappings) -> str | None:
    """Return the first key with a Spark SQL expression, such as `mapping.person.filter`; None if there is none."""
    return next((f"mapping.{table}.{key}" for table, mapping in mappings.items() for key in mapping.sql), None)


def fingerprint(mappings: Mappings) -> str:
    """Return a text that differs when the declarations differ; "" without mappings.

    A function counts by its name only: a change of its code is declared by a new `TableMapping.version`.
    """
    plain = {table: _plain(mapping) for table, mapping in mappings.items() if mapping != TableMapping()}
    if not plain:
        return ""
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=_function_name).encode()).hexdigest()


def _plain(mapping: TableMapping) -> dict[str, object]:
    columns = {
        name: [str(column.type), column.optional, _said(column.expression)] for name, column in mapping.columns.items()
    }
    kept = None if mapping.select is None else list(mapping.select)
    condition = None if mapping.filter is None else _said(mapping.filter)
    return {
        "name": mapping.name,
        "select": kept,
        "rename": dict(mapping.rename),
        "filter": condition,
        "columns": columns,
        "version": mapping.version,
    }


def _said(expression: Expression) -> list[object]:
    match expression:
        case Function(function):
            return ["function", function]
        case Sql(sql):
            return ["sql", sql]
        case Mask(mask):
            return ["mask", mask]


def _function_name(function: Callable[..., object]) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def load_mappings(declared: Mapping[str, object], python: str = "") -> Mappings:
    """Parse the mappings of a TOML table and add those of a Python name `module:NAME`.

    Every function is imported here, so that a wrong path is an error at the start and not at the first row. Raises
    `ConfigurationError`.
    """
    mappings = {table: _parse_table(f"mapping.{table}", value) for table, value in declared.items()}
    for table, mapping in _load_python(python).items():
        if table in mappings:
            raise wrong(f"mapping.{table}", f"the table is mapped here and in {python}", "keep one of the two")
        mappings[table] = mapping
    for table, mapping in mappings.items():
        for key, expression in mapping.expressions.items():
            if isinstance(expression, Function):
                expression.load(f"mapping.{table}.{key}")
    return mappings


def _load_python(path: str) -> Mappings:
    if not path:
        return {}
    module, _, name = path.partition(":")
    try:
        loaded = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise wrong("mappings", f"cannot load {path!r}: {error}", "give it as module:NAME") from None
    if not isinstance(loaded, Mapping) or not all(isinstance(mapping, TableMapping) for mapping in loaded.values()):
        raise wrong("mappings", f"{path!r} is not a dict of TableMapping", 'write {"table": TableMapping(…), …}')
    return loaded


def _parse_table(key: str, value: object) -> TableMapping:
    table = _table(key, value, ("name", "select", "rename", "filter", "columns", "version"))
    chosen = table.get("select")
    if chosen is not None and not (isinstance(chosen, list) and all(isinstance(name, str) for name in chosen)):
        raise wrong(f"{key}.select", "it must be a list of column names", 'write select = ["id", "title"]')
    condition = table.get("filter")
    columns = _table(f"{key}.columns", table.get("columns", {}))
    return TableMapping(
        name=_text(f"{key}.name", table["name"]) if "name" in table else None,
        select=chosen,
        rename={
            old: _text(f"{key}.rename.{old}", new)
            for old, new in _table(f"{key}.rename", table.get("rename", {})).items()
        },
        filter=None if condition is None else _parse_filter(f"{key}.filter", condition),
        columns={name: _parse_column(f"{key}.columns.{name}", column) for name, column in columns.items()},
        version=_version(f"{key}.version", table.get("version", 1)),
    )


def _parse_filter(key: str, value: object) -> Function | Sql:
    expression = _parse_expression(key, _table(key, value, ("function", "sql")))
    assert not isinstance(expression, Mask)
    return expression


def _parse_column(key: str, value: object) -> MappedColumn:
    table = _table(key, value, ("function", "sql", "mask", "type", "optional"))
    optional = table.get("optional")
    if optional is not None and not isinstance(optional, bool):
        raise wrong(f"{key}.optional", "it must be true or false", "correct it, or leave it out")
    kind = _text(f"{key}.type", table["type"]) if "type" in table else None
    return MappedColumn(_parse_expression(key, table), kind, optional)


def _parse_expression(key: str, table: Mapping[str, object]) -> Expression:
    kinds = [word for word in ("function", "sql", "mask") if word in table]
    if len(kinds) != 1:
        fix = 'write { function = "module:name" }, { sql = "…" } or, for a column, { mask = "null" }'
        raise wrong(key, f"it has {len(kinds)} expressions where one is needed", fix)
    (kind,) = kinds
    text = _text(f"{key}.{kind}", table[kind])
    match kind:
        case "function":
            return Function(text)
        case "sql":
            return Sql(text)
    for mask in get_args(MaskName):
        if text == mask:
            return Mask(mask)
    raise wrong(f"{key}.mask", f"there is no mask {text!r}", nearest(text, list(MASKS)))


def _table(key: str, value: object, known: Sequence[str] = ()) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise wrong(key, "it must be a table", f"write [{key}], or {key.rpartition('.')[2]} = {{ … }}")
    for name in value:
        if known and name not in known:
            raise wrong(f"{key}.{name}", f"unknown key {name!r}", nearest(name, list(known)))
    return value


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise wrong(key, "it must be a text", "put it in quotes")
    return value


def _version(key: str, value: object) -> int:
    if type(value) is not int:
        raise wrong(key, "it must be a whole number", "write version = 2")
    return value
