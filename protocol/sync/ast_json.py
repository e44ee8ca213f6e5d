"""Query ASTs from and to JSON values.

`parse` is the border: what it returns is structurally sound (known operators, literals of the right shape, aliases
where they are needed, bounded nesting); an error names the JSON path of the offending value. Names are not resolved
here; `reference_cache.zql.query.check` does that with a schema. Unknown keys are ignored.
`to_json(parse(x))` equals `x`, key order included, for every `x` without unknown keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from reprlib import Repr
from typing import Any, TypeVar, cast, get_args

from protocol.data_types import SAFE_INTEGER
from protocol.errors import ProtocolError
from protocol.sync.ast import (
    Anchor,
    And,
    Column,
    Condition,
    CorrelatedSubquery,
    Correlation,
    Direction,
    Exists,
    ExistsOp,
    Keys,
    Literal,
    LiteralValue,
    Operand,
    Or,
    Ordering,
    Query,
    Simple,
    SimpleOp,
    Start,
    Static,
    System,
)

MAX_NESTING = 48
"""Groups and subqueries may nest this deep; beyond it evaluation would risk the interpreter's stack."""

_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxlist, _SHORT.maxdict = 2, 60, 4, 4

T = TypeVar("T")
Json = Mapping[str, Any]


class AstError(ProtocolError):
    """A query that cannot be understood; `path` says where in its JSON, `reason` why and what is allowed."""

    code = "bad-query"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason, where=path or "(query)")
        self.path = path
        self.reason = reason


def parse(value: object) -> Query:
    """The query of a JSON value; raises `AstError`."""
    return _query(value, "", 0, subquery=False)


def parse_condition(value: object) -> Condition:
    """The condition of a JSON value; raises `AstError`."""
    return _condition(value, "", 0)


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _shown(value: object) -> str:
    # Shortened while it is made: what a client sends may be huge, or nested deeper than repr can follow.
    return _SHORT.repr(value)


def _object(value: object, path: str) -> Json:
    if not isinstance(value, dict):
        raise AstError(path, f"expected an object, got {_shown(value)}")
    return value


def _list(value: object, path: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise AstError(path, f"expected a list, got {_shown(value)}")
    return value


def _string(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise AstError(path, f"expected a string, got {_shown(value)}")
    return value


def _bool(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise AstError(path, f"expected true or false, got {_shown(value)}")
    return value


def _required(obj: Json, key: str, path: str) -> Any:
    if key not in obj:
        raise AstError(path, f"the key {key!r} is missing")
    return obj[key]


def _optional(obj: Json, key: str, path: str, read: Callable[[object, str], T]) -> T | None:
    return read(obj[key], _at(path, key)) if key in obj else None


def _choice(value: object, allowed: tuple[str, ...], path: str) -> Any:
    if value not in allowed:
        raise AstError(path, f"{_shown(value)} is not one of {', '.join(allowed)}")
    return value


def _keys(obj: Json, known: frozenset[str]) -> Keys:
    return tuple(key for key in obj if key in known)


def _deeper(depth: int, path: str) -> int:
    if depth >= MAX_NESTING:
        raise AstError(path, f"nested more than {MAX_NESTING} levels deep; flatten the groups or split the query")
    return depth + 1


_QUERY_KEYS = frozenset({"schema", "table", "alias", "where", "related", "start", "limit", "orderBy"})
_RELATED_KEYS = frozenset({"correlation", "subquery", "hidden", "system"})
_EXISTS_KEYS = frozenset({"type", "op", "related", "flip", "scalar"})
_SIMPLE_KEYS = frozenset({"type", "op", "left", "right"})
_GROUP_KEYS = frozenset({"type", "conditions"})
_OPERAND_KEYS = {
    "literal": frozenset({"type", "value"}),
    "column": frozenset({"type", "name"}),
    "static": frozenset({"type", "anchor", "field"}),
}
_START_KEYS = frozenset({"row", "exclusive"})
_CORRELATION_KEYS = frozenset({"parentField", "childField"})
_DIRECTIONS, _SYSTEMS, _ANCHORS = get_args(Direction), get_args(System), get_args(Anchor)
_SIMPLE_OPS, _EXISTS_OPS = get_args(SimpleOp), get_args(ExistsOp)
_OPERAND_TYPES = tuple(_OPERAND_KEYS)
_CONDITION_TYPES = ("simple", "and", "or", "correlatedSubquery")


def _query(value: object, path: str, depth: int, *, subquery: bool) -> Query:
    obj = _object(value, path)
    if subquery and "alias" not in obj:
        raise AstError(path, "a subquery needs an 'alias'")
    inner = _deeper(depth, path)
    related = obj.get("related", ())
    related_path = _at(path, "related")
    return Query(
        table=_string(_required(obj, "table", path), _at(path, "table")),
        schema=_optional(obj, "schema", path, _string),
        alias=_optional(obj, "alias", path, _string),
        where=_condition(obj["where"], _at(path, "where"), inner) if "where" in obj else None,
        related=tuple(
            _correlated(item, f"{related_path}[{i}]", inner) for i, item in enumerate(_list(related, related_path))
        ),
        start=_optional(obj, "start", path, _start),
        limit=_optional(obj, "limit", path, _limit),
        order_by=_optional(obj, "orderBy", path, _ordering) or (),
        keys=_keys(obj, _QUERY_KEYS),
    )


def _limit(value: object, path: str) -> int:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value % 1 == 0
    if not whole or cast(float, value) < 0:
        raise AstError(path, f"a limit is a whole number, zero or more; got {_shown(value)}")
    return int(cast(float, value))


def _ordering(value: object, path: str) -> Ordering:
    return tuple(_order_part(part, f"{path}[{i}]") for i, part in enumerate(_list(value, path)))


def _order_part(value: object, path: str) -> tuple[str, Direction]:
    part = _list(value, path)
    if len(part) != 2:
        raise AstError(path, f"expected [column, direction], got {_shown(value)}")
    return _string(part[0], f"{path}[0]"), _choice(part[1], _DIRECTIONS, f"{path}[1]")


def _start(value: object, path: str) -> Start:
    obj = _object(value, path)
    row = dict(_object(_required(obj, "row", path), _at(path, "row")))
    for column, content in row.items():
        _check_depth(content, f"{path}.row.{column}", 0)
    exclusive = _bool(_required(obj, "exclusive", path), _at(path, "exclusive"))
    return Start(row, exclusive, keys=_keys(obj, _START_KEYS))


def _check_depth(value: object, path: str, depth: int) -> None:
    if isinstance(value, dict | list):
        inner = _deeper(depth, path)
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, path, inner)


def _correlated(value: object, path: str, depth: int) -> CorrelatedSubquery:
    obj = _object(value, path)
    return CorrelatedSubquery(
        correlation=_correlation(_required(obj, "correlation", path), _at(path, "correlation")),
        subquery=_query(_required(obj, "subquery", path), _at(path, "subquery"), depth, subquery=True),
        hidden=_optional(obj, "hidden", path, _bool),
        system=_optional(obj, "system", path, lambda v, p: cast(System, _choice(v, _SYSTEMS, p))),
        keys=_keys(obj, _RELATED_KEYS),
    )


def _correlation(value: object, path: str) -> Correlation:
    obj = _object(value, path)
    parent = _columns(_required(obj, "parentField", path), _at(path, "parentField"))
    child = _columns(_required(obj, "childField", path), _at(path, "childField"))
    if len(parent) != len(child):
        raise AstError(path, f"{len(parent)} parent columns against {len(child)} child columns; they go in pairs")
    return Correlation(parent, child, keys=_keys(obj, _CORRELATION_KEYS))


def _columns(value: object, path: str) -> tuple[str, ...]:
    columns = _list(value, path)
    if not columns:
        raise AstError(path, "needs at least one column")
    return tuple(_string(column, f"{path}[{i}]") for i, column in enumerate(columns))


def _condition(value: object, path: str, depth: int) -> Condition:
    obj = _object(value, path)
    kind = _choice(_required(obj, "type", path), _CONDITION_TYPES, _at(path, "type"))
    if kind == "simple":
        return _simple(obj, path)
    if kind == "correlatedSubquery":
        return _exists(obj, path, depth)
    inner = _deeper(depth, path)
    members_path = _at(path, "conditions")
    members = _list(_required(obj, "conditions", path), members_path)
    conditions = tuple(_condition(member, f"{members_path}[{i}]", inner) for i, member in enumerate(members))
    return (And if kind == "and" else Or)(conditions, keys=_keys(obj, _GROUP_KEYS))


def _exists(obj: Json, path: str, depth: int) -> Exists:
    return Exists(
        op=_choice(_required(obj, "op", path), _EXISTS_OPS, _at(path, "op")),
        related=_correlated(_required(obj, "related", path), _at(path, "related"), depth),
        flip=_optional(obj, "flip", path, _bool),
        scalar=_optional(obj, "scalar", path, _bool),
        keys=_keys(obj, _EXISTS_KEYS),
    )


def _simple(obj: Json, path: str) -> Simple:
    op: SimpleOp = _choice(_required(obj, "op", path), _SIMPLE_OPS, _at(path, "op"))
    left_path, right_path = _at(path, "left"), _at(path, "right")
    left = _operand(_required(obj, "left", path), left_path)
    right = _operand(_required(obj, "right", path), right_path)
    if isinstance(right, Column):
        raise AstError(right_path, "the right side is a literal or a static parameter, not a column")
    if isinstance(left, Literal) and isinstance(left.value, tuple):
        raise AstError(_at(left_path, "value"), "a list may only be on the right of IN or NOT IN")
    if isinstance(right, Literal):
        _check_right(op, right.value, _at(right_path, "value"))
    return Simple(op, left, right, keys=_keys(obj, _SIMPLE_KEYS))


def _check_right(op: SimpleOp, value: LiteralValue, path: str) -> None:
    if value is None:
        return
    if op in ("IN", "NOT IN"):
        if not isinstance(value, tuple):
            raise AstError(path, f"{op} needs a list, got {_shown(value)}")
    elif isinstance(value, tuple):
        raise AstError(path, f"{op} compares with a single value; use IN for a list")
    elif op.endswith("LIKE") and not isinstance(value, str):
        raise AstError(path, f"{op} needs a string pattern, got {_shown(value)}")


def _operand(value: object, path: str) -> Operand:
    obj = _object(value, path)
    kind = _choice(_required(obj, "type", path), _OPERAND_TYPES, _at(path, "type"))
    keys = _keys(obj, _OPERAND_KEYS[kind])
    if kind == "literal":
        return Literal(_literal(_required(obj, "value", path), _at(path, "value")), keys=keys)
    if kind == "column":
        return Column(_string(_required(obj, "name", path), _at(path, "name")), keys=keys)
    anchor = _choice(_required(obj, "anchor", path), _ANCHORS, _at(path, "anchor"))
    return Static(anchor, _field(_required(obj, "field", path), _at(path, "field")), keys=keys)


def _field(value: object, path: str) -> str | tuple[str, ...]:
    return value if isinstance(value, str) else _columns(value, path)


def _literal(value: object, path: str) -> LiteralValue:
    if value is None or isinstance(value, str | bool | int | float):
        return None if value is None else _scalar(value, path)
    if isinstance(value, list | tuple):
        return tuple(_scalar(item, f"{path}[{i}]") for i, item in enumerate(value))
    raise AstError(path, f"a literal is a string, number, boolean, null or list of these; got {_shown(value)}")


def _scalar(value: object, path: str) -> str | int | float | bool:
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int) and abs(value) <= SAFE_INTEGER:
        return value
    if not isinstance(value, int | float):
        raise AstError(path, f"list members are strings, numbers or booleans; got {_shown(value)}")
    # Numbers are doubles on every other side, so a larger integer means the double nearest to it.
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise AstError(path, f"{_shown(value)} is not a number JSON can carry")
    return number


def to_json(query: Query) -> dict[str, Any]:
    """The JSON value of a query; keys in the order they were read, new ones after them."""
    fields: dict[str, Any] = {
        "schema": query.schema,
        "table": query.table,
        "alias": query.alias,
        "where": None if query.where is None else condition_to_json(query.where),
        "related": [correlated_to_json(related) for related in query.related] or None,
        "start": None if query.start is None else _start_to_json(query.start),
        "limit": query.limit,
        "orderBy": [list(part) for part in query.order_by] or None,
    }
    for key in ("related", "orderBy"):
        if fields[key] is None and key in query.keys:
            fields[key] = []
    return _in_order(fields, query.keys)


def correlated_to_json(related: CorrelatedSubquery) -> dict[str, Any]:
    """The JSON value of a correlated subquery."""
    correlation = related.correlation
    pair = {"parentField": list(correlation.parent_field), "childField": list(correlation.child_field)}
    fields = {
        "system": related.system,
        "hidden": related.hidden,
        "correlation": _in_order(pair, correlation.keys),
        "subquery": to_json(related.subquery),
    }
    return _in_order(fields, related.keys)


def condition_to_json(condition: Condition) -> dict[str, Any]:
    """The JSON value of a condition."""
    fields: dict[str, Any]
    if isinstance(condition, Simple):
        left, right = _operand_to_json(condition.left), _operand_to_json(condition.right)
        fields = {"type": "simple", "left": left, "right": right, "op": condition.op}
    elif isinstance(condition, Exists):
        fields = {"type": "correlatedSubquery", "related": correlated_to_json(condition.related), "op": condition.op}
        fields |= {"flip": condition.flip, "scalar": condition.scalar}
    else:
        kind = "and" if isinstance(condition, And) else "or"
        fields = {"type": kind, "conditions": [condition_to_json(member) for member in condition.conditions]}
    return _in_order(fields, condition.keys)


def _operand_to_json(operand: Operand) -> dict[str, Any]:
    fields: dict[str, Any]
    if isinstance(operand, Literal):
        value = list(operand.value) if isinstance(operand.value, tuple) else operand.value
        fields = {"type": "literal", "value": value}
        return {key: fields[key] for key in operand.keys} if operand.keys else fields
    if isinstance(operand, Column):
        fields = {"type": "column", "name": operand.name}
    else:
        name = list(operand.field) if isinstance(operand.field, tuple) else operand.field
        fields = {"type": "static", "anchor": operand.anchor, "field": name}
    return _in_order(fields, operand.keys)


def _start_to_json(start: Start) -> dict[str, Any]:
    return _in_order({"row": dict(start.row), "exclusive": start.exclusive}, start.keys)


def _in_order(fields: dict[str, Any], keys: Keys) -> dict[str, Any]:
    present = {key: value for key, value in fields.items() if value is not None}
    if not keys:
        return present
    return {key: present[key] for key in keys if key in present} | present
