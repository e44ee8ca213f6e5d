"""Random schemas and rows, small enough that joins, ties and nulls happen all the time.

A world is the dataset of the golden corpus: `{"schema": {"tables", "relationships"}, "rows"}`.  Every choice comes from
the `random.Random` given, so a seed names a world for ever.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

Json = dict[str, Any]
Row = dict[str, Any]

DOMAINS: dict[str, list[Any]] = {
    "string": ["", "a", "A", "ab", "b%", "a_c", "é", "É", "z\nz", "\U0001f600", "\uffee", "back\\slash"],
    "number": [-1, 0, 1, 2, 3, 1.5, 1e15],
    "boolean": [False, True],
    "json": [{"a": [1, None]}, [], [True, "x"], "text", 7, False],
}
KEY_DOMAINS: dict[str, list[Any]] = {
    "string": ["a", "b", "c", "d", "é", "\U0001f600", "\uffee"],
    "number": [0, 1, 2, 3, 4, 10],
    "boolean": [False, True],
}
TABLE_NAMES = ["one", "two", "three", "order", "Mixed Case", "ünï"]
COLUMN_NAMES = ["title", "rank", "group", "done", "meta", "note", "Big Name", "ß"]


def make_world(random: Random) -> Json:
    """A schema with one to five tables, relationships between like columns, and rows."""
    names = random.sample(TABLE_NAMES, random.randint(1, 5))
    tables = {name: _table(random, name) for name in names}
    relationships = {name: _relationships(random, tables, name) for name in names}
    for name in names:
        relationships[name] |= _junctions(random, relationships, name)
    rows = {name: make_rows(random, table, random.randint(0, 12)) for name, table in tables.items()}
    return {"schema": {"tables": tables, "relationships": relationships}, "rows": rows}


def _table(random: Random, name: str) -> Json:
    key_kinds = [random.choice(("string", "number")) for _ in range(random.choice((1, 1, 2)))]
    columns: Json = {f"k{at}": {"type": kind} for at, kind in enumerate(key_kinds)}
    for at in range(random.randint(1, 3)):
        columns[f"ref{at}"] = {"type": random.choice(("string", "number", "number")), "optional": random.random() < 0.7}
    for column in random.sample(COLUMN_NAMES, random.randint(1, 4)):
        kind = random.choice(("string", "number", "boolean", "json"))
        columns[column] = {"type": kind, "optional": random.random() < 0.6}
    key = [column for column in columns if column.startswith("k")]
    random.shuffle(key)
    return {"name": name, "columns": columns, "primaryKey": key}


def _relationships(random: Random, tables: Json, source: str) -> Json:
    found: Json = {}
    for at in range(random.randint(1, 4)):
        target = random.choice(list(tables))
        pairs = _like_pairs(random, tables[source], tables[target])
        if pairs:
            found[f"r{at}"] = [_hop(pairs, tables[target])]
    return found


def _like_pairs(random: Random, source: Json, target: Json) -> list[tuple[str, str]]:
    """One or two pairs of columns with the same type, no column used twice; empty if there are none."""
    pairs = [
        (ours, theirs)
        for ours, mine in source["columns"].items()
        for theirs, other in target["columns"].items()
        if mine["type"] == other["type"] != "json" and _joinable(ours) and _joinable(theirs)
    ]
    random.shuffle(pairs)
    chosen = pairs[:1]
    if chosen and random.random() < 0.2:
        (first, second) = chosen[0]
        chosen += [pair for pair in pairs if first != pair[0] and second != pair[1]][:1]
    return chosen


def _joinable(column: str) -> bool:
    return column.startswith(("k", "ref")) or column == "done"


def _hop(pairs: list[tuple[str, str]], target: Json) -> Json:
    fields = [theirs for _, theirs in pairs]
    unique = set(target["primaryKey"]) <= set(fields)
    return {
        "sourceField": [ours for ours, _ in pairs],
        "destField": fields,
        "destSchema": target["name"],
        "cardinality": "one" if unique else "many",
    }


def _junctions(random: Random, relationships: Json, source: str) -> Json:
    found: Json = {}
    for name, hops in list(relationships[source].items()):
        onward = [hop for hop in relationships[hops[-1]["destSchema"]].values() if len(hop) == 1]
        if onward and len(hops) == 1 and random.random() < 0.4:
            found[f"{name}x"] = [hops[0], random.choice(onward)[0]]
    return found


def make_rows(random: Random, table: Json, count: int) -> list[Row]:
    """Up to `count` rows with distinct keys."""
    made: dict[tuple[Any, ...], Row] = {}
    for _ in range(count):
        row = make_row(random, table)
        made.setdefault(key_of(table, row), row)
    return list(made.values())


def make_row(random: Random, table: Json) -> Row:
    return {column: make_value(random, column, spec) for column, spec in table["columns"].items()}


def make_value(random: Random, column: str, spec: Json) -> Any:
    """A value for a column: keys and references from a few values, the rest from those that break things."""
    if spec.get("optional") and random.random() < 0.25:
        return None
    domains = KEY_DOMAINS if column.startswith(("k", "ref")) else DOMAINS
    return random.choice(domains[spec["type"]])


def key_of(table: Json, row: Row) -> tuple[Any, ...]:
    return tuple(row[column] for column in table["primaryKey"])


def check_hops(world: Json) -> None:
    """Fail if a relationship's hops do not meet: the generator's own invariant."""
    for named in world["schema"]["relationships"].values():
        for hops in named.values():
            for first, second in pairwise(hops):
                columns = world["schema"]["tables"][first["destSchema"]]["columns"]
                assert set(second["sourceField"]) <= set(columns)
