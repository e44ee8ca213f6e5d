"""Random legal changes to a world: transactions of a few changes, no row touched twice in one."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.oracle.worlds import Json, Row, key_of, make_row, make_value

Rows = dict[str, list[Row]]


def make_transaction(random: Random, world: Json, rows: Rows, tables: list[str]) -> list[Json]:
    """One to four changes to the given tables; applies them to `rows`."""
    touched: set[tuple[Any, ...]] = set()
    made: list[Json] = []
    for _ in range(random.choice((1, 1, 2, 3, 4))):
        table = world["schema"]["tables"][random.choice(tables)]
        change = _change(random, table, rows[table["name"]])
        mark = (table["name"], *key_of(table, change["row"])) if change else ()
        if change and mark not in touched:
            touched.add(mark)
            apply(rows, change, table["primaryKey"])
            made.append(change)
    return made


def apply(rows: Rows, change: Json, key: list[str]) -> None:
    """Apply one change to plain rows."""
    mine = rows[change["table"]]
    if change["op"] == "add":
        mine.append(change["row"])
        return
    wanted = [change["row"][column] for column in key]
    at = next(at for at, row in enumerate(mine) if [row[column] for column in key] == wanted)
    if change["op"] == "remove":
        del mine[at]
    else:
        mine[at] = change["row"]


def _change(random: Random, table: Json, present: list[Row]) -> Json | None:
    draw = random.random()
    if draw < 0.35 or not present:
        row = make_row(random, table)
        taken = any(key_of(table, other) == key_of(table, row) for other in present)
        return None if taken else {"op": "add", "table": table["name"], "row": row}
    old = random.choice(present)
    if draw < 0.6:
        return {"op": "remove", "table": table["name"], "row": old}
    return {"op": "edit", "table": table["name"], "row": _edited(random, table, old), "oldRow": old}


def _edited(random: Random, table: Json, old: Row) -> Row:
    editable = [column for column in table["columns"] if column not in table["primaryKey"]]
    chosen = random.sample(editable, random.randint(1, min(2, len(editable))))
    return old | {column: make_value(random, column, table["columns"][column]) for column in chosen}
