"""A whole query as one SQLite statement: what the engine computes incrementally, computed by the database at once.

`to_sql` gives a statement with one row and one column, the result tree as JSON text.  It serves as an oracle (the
engine and SQLite must agree) and to look at a query's answer without a pipeline.  The connection it runs on must be
prepared with `prepare`.  Contract: the query is bound and well typed (`reference_cache.zql.query.check`), tables are
stored as the SQLite source stores them (booleans as 0 and 1, json as text), no table has more than 60 columns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from protocol.sync.ast import And, Column, Condition, CorrelatedSubquery, Exists, Literal, Operand, Or, Query, Simple
from reference_cache.zql.ordering import complete
from reference_cache.zql.schema import Schema, ValueType

Format = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL text with named parameters, and their values; some may be unused."""

    text: str
    parameters: Mapping[str, Any]


def prepare(connection: sqlite3.Connection) -> None:
    """Give a connection the query language's LIKE: case-sensitive, with Unicode lower-casing for ILIKE."""
    connection.execute("PRAGMA case_sensitive_like = ON")
    connection.create_function("lower", 1, lambda text: text and text.lower(), deterministic=True)


def to_sql(query: Query, format_: Format, schema: Schema) -> Statement:
    """The statement whose only value is the result tree, as JSON text; null for an empty singular query."""
    writer = _Writer(schema)
    text = f"SELECT {writer.tree(query, format_, '1')}"
    return Statement(text, writer.parameters)


@dataclass(slots=True)
class _Writer:
    """Writes SQL; `parameters` holds the value of every `:name` written so far."""

    schema: Schema
    parameters: dict[str, Any] = field(default_factory=dict)
    _aliases: int = 0

    def tree(self, query: Query, format_: Format, condition: str) -> str:
        """A scalar expression: the rows of one level that satisfy `condition`, as JSON."""
        return self._tree(query, format_, self._alias(), condition)

    def _tree(self, query: Query, format_: Format, alias: str, condition: str) -> str:
        entry = self._entry(query, format_, alias)
        rows = self._rows(query, alias, f"{entry} AS entry", condition)
        if format_["singular"]:
            return f"({rows})"
        return f"(SELECT json_group_array(json(entry)) FROM ({rows}))"

    def _rows(self, query: Query, alias: str, selected: str, condition: str) -> str:
        table = self.schema.tables[query.table]
        ordering = complete(query.order_by, table.primary_key)
        order = ", ".join(f"{_column(alias, column)} {direction}" for column, direction in ordering)
        where = f"{condition} AND {self._start(query, alias)} AND {self._condition(query.where, alias)}"
        limit = "" if query.limit is None else f" LIMIT {query.limit:d}"
        return f"SELECT {selected} FROM {_name(query.table)} AS {alias} WHERE {where} ORDER BY {order}{limit}"

    def _entry(self, query: Query, format_: Format, alias: str) -> str:
        columns = self.schema.tables[query.table].columns.items()
        parts = [f"{_text(name)}, {_json_value(_column(alias, name), spec.type)}" for name, spec in columns]
        by_alias = {related.alias: related for related in query.related}
        for name, inner in format_["relationships"].items():
            parts.append(f"{_text(name)}, json({self._relationship(by_alias[name], inner, alias)})")
        return f"json_object({', '.join(parts)})"

    def _relationship(self, related: CorrelatedSubquery, format_: Format, parent: str) -> str:
        near = self._alias()
        if not related.hidden:
            return self._tree(related.subquery, format_, near, _joined(related, parent, near))
        (through,) = related.subquery.related
        if through.subquery.limit is not None or through.subquery.start is not None:
            raise ValueError(f"{related.alias!r}: a window on the far side of a junction has no SQL form")
        far = self._alias()
        junction = self._rows(related.subquery, near, "*", _joined(related, parent, near))
        reached = f"EXISTS (SELECT 1 FROM ({junction}) AS {near} WHERE {_joined(through, near, far)})"
        return self._tree(through.subquery, format_, far, reached)

    def _condition(self, condition: Condition | None, alias: str) -> str:
        match condition:
            case None:
                return "1"
            case Simple():
                return self._simple(condition, alias)
            case Exists():
                return self._exists(condition, alias)
            case And(members):
                return "(" + " AND ".join(["1", *(self._condition(member, alias) for member in members)]) + ")"
            case Or(members):
                return "(" + " OR ".join(["0", *(self._condition(member, alias) for member in members)]) + ")"

    def _exists(self, condition: Exists, parent: str) -> str:
        subquery, child = condition.related.subquery, self._alias()
        if subquery.limit == 0:
            found = "0"
        else:
            joined = _joined(condition.related, parent, child)
            inner = f"{joined} AND {self._start(subquery, child)} AND {self._condition(subquery.where, child)}"
            found = f"EXISTS (SELECT 1 FROM {_name(subquery.table)} AS {child} WHERE {inner})"
        return found if condition.op == "EXISTS" else f"(NOT {found})"

    def _simple(self, condition: Simple, alias: str) -> str:
        left, right = self._operand(condition.left, alias), _value(condition.right)
        if condition.op in ("IS", "IS NOT"):
            return f"({left} {condition.op} {self._bind(right)})"
        if right is None:
            return "0"
        match condition.op:
            case "IN" | "NOT IN":
                test = f"{left} {condition.op} ({', '.join(self._bind(item) for item in right)})"
            case "LIKE" | "NOT LIKE":
                test = f"{left} {condition.op} {self._bind(right)} ESCAPE '\\'"
            case "ILIKE" | "NOT ILIKE":
                test = f"lower({left}) {condition.op.replace('ILIKE', 'LIKE')} lower({self._bind(right)}) ESCAPE '\\'"
            case _:
                test = f"{left} {condition.op} {self._bind(right)}"
        # Two-valued: a null on the left makes every comparison false, never unknown.
        return f"({left} IS NOT NULL AND {test})"

    def _start(self, query: Query, alias: str) -> str:
        if query.start is None:
            return "1"
        ordering = complete(query.order_by, self.schema.tables[query.table].primary_key)
        alternatives, equal = [], ["1"]
        for column, direction in ordering:
            name, bound = _column(alias, column), query.start.row.get(column)
            alternatives.append(" AND ".join([*equal, self._beyond(name, direction, bound)]))
            equal.append(f"{name} IS {self._bind(bound)}")
        if not query.start.exclusive:
            alternatives.append(" AND ".join(equal))
        return f"({' OR '.join(alternatives)})"

    def _beyond(self, name: str, direction: str, bound: Any) -> str:
        if direction == "asc":
            return f"{name} IS NOT NULL" if bound is None else f"{name} > {self._bind(bound)}"
        return "0" if bound is None else f"({name} IS NULL OR {name} < {self._bind(bound)})"

    def _operand(self, operand: Operand, alias: str) -> str:
        return _column(alias, operand.name) if isinstance(operand, Column) else self._bind(_value(operand))

    def _bind(self, value: Any) -> str:
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f":{name}"

    def _alias(self) -> str:
        self._aliases += 1
        return f"t{self._aliases}"


def _joined(related: CorrelatedSubquery, parent: str, child: str) -> str:
    pairs = zip(related.correlation.parent_field, related.correlation.child_field, strict=True)
    return " AND ".join(f"{_column(parent, ours)} = {_column(child, theirs)}" for ours, theirs in pairs)


def _value(operand: Operand) -> Any:
    if isinstance(operand, Literal):
        return operand.value
    raise ValueError(f"{operand} must be bound to a value before it can be written as SQL")


def _json_value(column: str, kind: ValueType) -> str:
    if kind == "boolean":
        return f"json(CASE {column} WHEN 0 THEN 'false' WHEN 1 THEN 'true' END)"
    return f"json({column})" if kind == "json" else column


def _column(alias: str, name: str) -> str:
    return f"{alias}.{_name(name)}"


def _name(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
