"""Random queries over a world: every operator, nesting, junctions, flips, cursors and limits.

A query is `{"ast", "format"}` as in the golden corpus.  What the official API refuses (a limit on the far side of a
junction, a cursor below EXISTS) or leaves undefined (a limit below a flipped EXISTS, values of another type) is not
made.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from tests.oracle.worlds import DOMAINS, Json, make_value

RANGE = ["=", "!=", "<", ">", "<=", ">=", "IS", "IS NOT", "IN", "NOT IN"]
OPERATORS = {
    "string": [*RANGE, "LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"],
    "number": RANGE,
    "boolean": ["=", "!=", "IS", "IS NOT", "IN", "NOT IN"],
}
PATTERNS = ["%", "", "a%", "%b", "_", "a\\_c", "b\\%", "%\\\\%", "É", "é%", "A", "%z%", "__", "(a|b)%", "\U0001f600"]


def make_query(random: Random, world: Json, *, depth: int = 3) -> Json:
    """One random root query with its format."""
    table = random.choice(list(world["schema"]["tables"]))
    return _Maker(random, world).root(table, depth)


@dataclass(frozen=True, slots=True)
class _Maker:
    random: Random
    world: Json

    def root(self, table: str, depth: int) -> Json:
        ast, format_ = self.level(table, depth)
        if self.random.random() < 0.08:
            ast["limit"] = 1
            format_["singular"] = True
        return {"ast": ast, "format": format_}

    def level(self, table: str, depth: int, *, windowed: bool = True) -> tuple[Json, Json]:
        """A level that is shown: its query (without alias) and its format."""
        ast: Json = {"table": table}
        if self.chance(0.6):
            ast["where"] = self.condition(table, depth)
        related, formats = self.related(table, depth) if depth > 0 and self.chance(0.6) else ([], {})
        if related:
            ast["related"] = related
        if windowed:
            ast |= self.window(table)
        return ast, {"singular": False, "relationships": formats}

    def window(self, table: str) -> Json:
        window: Json = {}
        if self.chance(0.6):
            window["orderBy"] = self.ordering(table)
        if self.chance(0.15):
            row = self.sample_row(table)
            columns = [column for column, _ in window.get("orderBy", [])] + self.table(table)["primaryKey"]
            kept = [column for column in columns if self.chance(0.9)]
            window["start"] = {"row": {column: row[column] for column in kept}, "exclusive": self.chance(0.5)}
        if self.chance(0.4):
            window["limit"] = self.random.choice((0, 1, 1, 2, 2, 3, 4, 6))
        return window

    def ordering(self, table: str) -> list[list[str]]:
        columns = [name for name, spec in self.table(table)["columns"].items() if spec["type"] != "json"]
        chosen = self.random.sample(columns, self.random.randint(1, min(3, len(columns))))
        return [[column, self.random.choice(("asc", "desc"))] for column in chosen]

    def related(self, table: str, depth: int) -> tuple[list[Json], Json]:
        found: list[Json] = []
        formats: Json = {}
        declared = self.world["schema"]["relationships"][table]
        for name in self.random.sample(list(declared), min(len(declared), self.random.randint(1, 2))):
            hops = declared[name]
            entry, formats[name] = (
                self.hop(name, hops[0], depth) if len(hops) == 1 else self.junction(name, hops, depth)
            )
            found.append(entry)
        return found, formats

    def hop(self, alias: str, hop: Json, depth: int) -> tuple[Json, Json]:
        ast, format_ = self.level(hop["destSchema"], depth - 1)
        if self.chance(0.15):
            ast["limit"] = 1
        format_["singular"] = hop["cardinality"] == "one" or (ast.get("limit") == 1 and self.chance(0.5))
        return {"system": "client", **_correlation(hop), "subquery": _named(ast, alias)}, format_

    def junction(self, alias: str, hops: list[Json], depth: int) -> tuple[Json, Json]:
        far, format_ = self.level(hops[1]["destSchema"], depth - 1, windowed=False)
        middle = {"system": "client", **_correlation(hops[1]), "subquery": _named(far, alias)}
        near = {"table": hops[0]["destSchema"], "alias": alias, "related": [middle]}
        return {"system": "client", **_correlation(hops[0]), "hidden": True, "subquery": near}, format_

    def condition(self, table: str, depth: int) -> Json:
        draw = self.random.random()
        if depth > 0 and draw < 0.35:
            return self.exists(table, depth)
        if depth > 0 and draw < 0.65:
            members = [self.condition(table, depth - 1) for _ in range(self.random.choice((0, 1, 2, 2, 2, 3)))]
            return {"type": self.random.choice(("and", "or", "or")), "conditions": members}
        return self.simple(table)

    def exists(self, table: str, depth: int) -> Json:
        declared = self.world["schema"]["relationships"][table]
        if not declared:
            return self.simple(table)
        name = self.random.choice(list(declared))
        hops = declared[name]
        op = self.random.choice(("EXISTS", "EXISTS", "NOT EXISTS"))
        flip = self.random.choice((None, True, True, False)) if op == "EXISTS" else None
        system = "permissions" if self.chance(0.05) else "client"
        far: Json = {"table": hops[-1]["destSchema"], "alias": f"zsubq_{name}"}
        if self.chance(0.6):
            far["where"] = self.condition(far["table"], depth - 1)
        if flip is False and self.chance(0.2):
            far["limit"] = self.random.choice((0, 1, 2, 5))
        if len(hops) == 1:
            return _exists(op, {"system": system, **_correlation(hops[0]), "subquery": far}, flip)
        far["alias"] = f"zsubq_zhidden_{name}"
        inner = _exists("EXISTS", {"system": system, **_correlation(hops[1]), "subquery": far}, flip)
        near = {"table": hops[0]["destSchema"], "alias": f"zsubq_{name}", "where": inner}
        return _exists(op, {"system": system, **_correlation(hops[0]), "subquery": near}, flip)

    def simple(self, table: str) -> Json:
        if self.chance(0.04):
            return _simple(self.random.choice(("=", "!=")), {"type": "literal", "value": 1}, self.random.choice((0, 1)))
        column, spec = self.random.choice(list(self.table(table)["columns"].items()))
        left = {"type": "column", "name": column}
        if spec["type"] == "json" or self.chance(0.1):
            return _simple(self.random.choice(("IS", "IS NOT", "=")), left, None)
        op = self.random.choice(OPERATORS[spec["type"]])
        return _simple(op, left, self.literal(table, column, spec, op))

    def literal(self, table: str, column: str, spec: Json, op: str) -> Any:
        if "LIKE" in op:
            return self.random.choice(PATTERNS)
        if "IN" in op:
            return [self.value(table, column, spec) for _ in range(self.random.choice((0, 1, 2, 3)))]
        return self.value(table, column, spec)

    def value(self, table: str, column: str, spec: Json) -> Any:
        """A value that is never null: most often one that occurs."""
        present = self.sample_row(table)[column] if self.chance(0.7) else None
        return self.random.choice(DOMAINS[spec["type"]]) if present is None else present

    def sample_row(self, table: str) -> Json:
        rows = self.world["rows"][table]
        if rows:
            return dict(self.random.choice(rows))
        columns = self.table(table)["columns"]
        return {column: make_value(self.random, column, spec) for column, spec in columns.items()}

    def table(self, name: str) -> Json:
        table: Json = self.world["schema"]["tables"][name]
        return table

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability


def _named(ast: Json, alias: str) -> Json:
    return {"table": ast["table"], "alias": alias, **ast}


def _correlation(hop: Json) -> Json:
    return {"correlation": {"parentField": hop["sourceField"], "childField": hop["destField"]}}


def _exists(op: str, related: Json, flip: bool | None) -> Json:
    condition = {"type": "correlatedSubquery", "op": op, "related": related}
    return condition if flip is None else {**condition, "flip": flip}


def _simple(op: str, left: Json, value: Any) -> Json:
    return {"type": "simple", "op": op, "left": left, "right": {"type": "literal", "value": value}}
