"""Random queries and cost models on the fixture schema: `python -m tests.reference_cache.zql.random_cases SEED COUNT`.

Prints one JSON line per case; `fixtures/official_random.mjs` adds what the official code makes of each. Queries use
every operator, odd literals, both key orders, empty groups, hand-set flips and repeated aliases.
"""

import json
import random
import sys
from typing import Any, get_args

from protocol.sync.ast import SimpleOp
from reference_cache.zql.schema import Relationship, TableSchema
from tests.reference_cache.zql.official import SCHEMA

LITERALS: dict[str, list[Any]] = {
    "string": ["a", "b", "é", "😀", "～", "a,b", "", "1", "true", "null", '"q\\', "\n", "10", "9"],
    "number": [0, 1, 2, 10, 9, 1.5, -3, 1e21, 1e-7, -0.0, 0.1, 123456789],
    "boolean": [True, False],
    "json": ["j", 1, True],
}


class Cases:
    """A stream of cases from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def case(self) -> dict[str, Any]:
        table = self.random.choice(list(SCHEMA.tables))
        return {"ast": self.query(table, self.random.randint(1, 3)), "model": {"tables": self.model()}}

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def model(self) -> dict[str, Any]:
        return {name: self.table_model(table) for name, table in SCHEMA.tables.items()}

    def table_model(self, table: TableSchema) -> dict[str, Any]:
        pick, columns = self.random.choice, list(table.columns)
        return {
            "rows": pick([0, 1, 3, 20, 100, 5000, 100_000]),
            "ndv": {column: pick([1, 2, 7, 100, 5000]) for column in columns},
            "sorted": [column for column in columns if self.chance(0.5)],
            "fanout": {column: pick([0, 1, 2, 3, 10, 500]) for column in columns if self.chance(0.6)},
        }

    def query(self, name: str, depth: int, alias: str | None = None, *, in_exists: bool = False) -> dict[str, Any]:
        table = SCHEMA.tables[name]
        query: dict[str, Any] = {"table": name} | ({"alias": alias} if alias else {})
        if self.chance(0.75):
            query["where"] = self.condition(table, depth, 3)
        relationships = SCHEMA.relationships.get(name)
        if relationships and depth and not in_exists and self.chance(0.5):
            chosen = self.random.choices(list(relationships), k=self.random.randint(1, 2))
            query["related"] = [self.related(relationships[each], depth, each) for each in chosen]
        if self.chance(0.4):
            query["limit"] = self.random.choice([0, 1, 5, 100])
        return query | {"orderBy": self.ordering(table)}

    def ordering(self, table: TableSchema) -> list[list[str]]:
        first = [[self.random.choice(list(table.columns)), self.random.choice(["asc", "desc"])]] * self.chance(0.5)
        return first + [[column, "asc"] for column in table.primary_key if [column] != [part[0] for part in first]]

    def related(self, hops: Relationship, depth: int, alias: str, *, in_exists: bool = False) -> dict[str, Any]:
        correlation = {"parentField": list(hops[0].source_field), "childField": list(hops[0].dest_field)}
        subquery = self.query(hops[0].table, depth - 1, alias, in_exists=in_exists)
        return {"correlation": correlation, "subquery": subquery} | ({"system": "client"} if self.chance(0.5) else {})

    def condition(self, table: TableSchema, depth: int, nesting: int) -> dict[str, Any]:
        kind = self.random.random()
        if nesting and kind < 0.45:
            size = self.random.randint(0, 1) if self.chance(0.1) else self.random.randint(2, 4)
            members = [self.condition(table, depth, nesting - 1) for _ in range(size)]
            return {"type": self.random.choice(["and", "or"]), "conditions": members}
        return self.exists(table, depth) if depth and kind < 0.8 else self.simple(table)

    def exists(self, table: TableSchema, depth: int) -> dict[str, Any]:
        relationships = SCHEMA.relationships.get(table.name)
        if not relationships:
            return self.simple(table)
        name = self.random.choice(list(relationships))
        related = self.related(relationships[name], depth, f"zsubq_{name}", in_exists=True)
        hints = {key: self.chance(0.5) for key in ("flip", "scalar") if self.chance(0.2)}
        op = "NOT EXISTS" if self.chance(0.2) else "EXISTS"
        return {"type": "correlatedSubquery", "related": related, "op": op} | hints

    def simple(self, table: TableSchema) -> dict[str, Any]:
        column = self.random.choice(list(table.columns))
        literals = LITERALS[table.columns[column].type]
        op = self.random.choice(get_args(SimpleOp))
        left = {"type": "column", "name": column}
        if self.chance(0.1):
            left = {"type": "literal", "value": self.random.choice(literals)}
        right = {"type": "literal", "value": self.right(op, literals)}
        if self.chance(0.5):
            return {"type": "simple", "op": op, "left": left, "right": right}
        return {"type": "simple", "left": left, "right": right, "op": op}

    def right(self, op: str, literals: list[Any]) -> Any:
        if "LIKE" in op:
            return self.random.choice(["a%", "_b", "x"])
        if op in ("IN", "NOT IN"):
            return self.random.choices(literals, k=self.random.randint(0, 3))
        return None if self.chance(0.1) else self.random.choice(literals)


if __name__ == "__main__":
    cases = Cases(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        print(json.dumps(cases.case(), ensure_ascii=False))
