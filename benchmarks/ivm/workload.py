"""The data, the queries and the changes that both engines are measured on.

Everything comes from one seed.  `write` puts it into a folder that both sides read: `workload.json` (schema, rows,
queries and, for each query, the changes to push one by one) and `replica.db` (the same rows as SQLite tables with the
indexes an application would have).  Changes are legal in their order: an added key is absent, a removed or edited row
is present with exactly the old values given.
"""

from __future__ import annotations

import copy
import json
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Change = dict[str, Any]

COLUMNS: dict[str, dict[str, str]] = {
    "user": {"id": "string", "name": "string", "role": "string"},
    "issue": {
        "id": "string",
        "title": "string",
        "open": "boolean",
        "priority": "number",
        "modified": "number",
        "ownerId": "string",
        "projectId": "string",
    },
    "comment": {"id": "string", "issueId": "string", "authorId": "string", "created": "number", "body": "string"},
}
INDEXES = {
    "issue": (("modified", "id"), ("ownerId",), ("projectId",)),
    "comment": (("issueId", "created"), ("authorId",)),
    "user": (("role",),),
}
SQL_TYPES = {"string": "TEXT", "number": "INTEGER", "boolean": "INTEGER"}


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    issues: int = 100_000
    comments: int = 200_000
    users: int = 1_000
    projects: int = 100
    changes: int = 10_000
    seed: int = 1


def _column(name: str) -> dict[str, str]:
    return {"type": "column", "name": name}


def _is(column: str, op: str, value: object) -> dict[str, Any]:
    return {"type": "simple", "op": op, "left": _column(column), "right": {"type": "literal", "value": value}}


def _exists(table: str, parent: str, child: str, where: dict[str, Any], *, flip: bool = False) -> dict[str, Any]:
    return {
        "type": "correlatedSubquery",
        "op": "EXISTS",
        "flip": flip,
        "related": _hop(table, parent, child, where=where),
    }


def _hop(table: str, parent: str, child: str, **subquery: Any) -> dict[str, Any]:
    body = {"table": table, "alias": f"{table}s", **subquery}
    return {"correlation": {"parentField": [parent], "childField": [child]}, "subquery": body}


def pipelines() -> dict[str, dict[str, Any]]:
    """The seven queries, by name.  Orderings are left for the engines to complete."""
    newest = {"orderBy": [["modified", "desc"]], "limit": 50}
    by_time = {"orderBy": [["created", "asc"]]}
    from_author = _is("authorId", "=", "u7")
    is_open = _is("open", "=", True)
    return {
        "filter": {"table": "issue", "where": {"type": "and", "conditions": [is_open, _is("priority", ">=", 3)]}},
        "filter_order_limit": {"table": "issue", "where": is_open, **newest},
        "related": {"table": "issue", "related": [_hop("comment", "id", "issueId", **by_time)]},
        "exists_limit": {"table": "issue", "where": _exists("comment", "id", "issueId", from_author), **newest},
        "flipped_exists_limit": {
            "table": "issue",
            "where": _exists("comment", "id", "issueId", from_author, flip=True),
            **newest,
        },
        "or_of_exists": {
            "table": "issue",
            "where": {
                "type": "or",
                "conditions": [
                    _exists("comment", "id", "issueId", from_author),
                    _exists("user", "ownerId", "id", _is("role", "=", "admin")),
                ],
            },
            **newest,
        },
        "three_levels": {
            "table": "issue",
            "where": is_open,
            "related": [_hop("comment", "id", "issueId", **by_time, related=[_hop("user", "authorId", "id")])],
        },
    }


def tables_of(query: dict[str, Any]) -> set[str]:
    """Every table a query reads, at any depth."""
    found = {query["table"]}
    pending: list[Any] = [query.get("where"), query.get("related")]
    while pending:
        match pending.pop():
            case {"subquery": subquery}:
                found |= tables_of(subquery)
            case {"conditions": inner}:
                pending.append(inner)
            case {"related": related}:
                pending.append(related)
            case list() as several:
                pending.extend(several)
    return found


class World:
    """The live rows while data and changes are made.  Invariant: `keys[t]` lists exactly the keys of `rows[t]`."""

    def __init__(self, size: Size) -> None:
        self._random = random.Random(size.seed)
        self._size = size
        self._clock = 0
        self._made = {"issue": 0, "comment": 0, "user": 0}
        self.rows: dict[str, dict[str, Row]] = {table: {} for table in COLUMNS}
        self._keys: dict[str, list[str]] = {table: [] for table in COLUMNS}
        for table, count in (("user", size.users), ("issue", size.issues), ("comment", size.comments)):
            for _ in range(count):
                self._put(table, self._fresh(table))

    def fork(self) -> World:
        """An independent copy, so that the changes of every query begin from the same rows."""
        twin = copy.copy(self)
        twin._random = random.Random(self._size.seed + 1)
        twin._made = dict(self._made)
        twin.rows = {table: dict(rows) for table, rows in self.rows.items()}
        twin._keys = {table: list(keys) for table, keys in self._keys.items()}
        return twin

    def changes(self, tables: set[str], count: int) -> Iterator[Change]:
        """Random legal changes to the given tables; rows change as they are yielded."""
        choices = [table for table in ("issue", "issue", "comment", "comment") if table in tables]
        for _ in range(count):
            table = "user" if "user" in tables and self._random.random() < 0.02 else self._random.choice(choices)
            yield self._change(table)

    def _change(self, table: str) -> Change:
        draw = 1.0 if table == "user" else self._random.random()
        if draw < 0.2:
            row = self._fresh(table)
            self._put(table, row)
            return {"op": "add", "table": table, "row": row}
        if draw < 0.4:
            return {"op": "remove", "table": table, "row": self._pop(table)}
        old = self.rows[table][self._random.choice(self._keys[table])]
        new = old | self._edit(table)
        self.rows[table][old["id"]] = new
        return {"op": "edit", "table": table, "row": new, "oldRow": old}

    def _edit(self, table: str) -> Row:
        if table == "user":
            return {"name": f"name {self._tick()}"}
        if table == "comment":
            return {"body": f"changed at {self._tick()}"}
        kind = self._random.randrange(3)
        if kind == 0:
            return {"title": f"renamed at {self._tick()}"}
        if kind == 1:
            return {"priority": self._random.randrange(5)}
        return {"open": self._random.random() < 0.5, "modified": self._tick()}

    def _fresh(self, table: str) -> Row:
        number = self._made[table]
        self._made[table] += 1
        draw = self._random
        if table == "user":
            return {"id": f"u{number}", "name": f"name {number}", "role": "admin" if number % 50 == 0 else "member"}
        author = f"u{draw.randrange(self._size.users)}"
        if table == "issue":
            return {
                "id": f"i{number}",
                "title": f"issue number {number}",
                "open": draw.random() < 0.5,
                "priority": draw.randrange(5),
                "modified": self._tick(),
                "ownerId": author,
                "projectId": f"p{draw.randrange(self._size.projects)}",
            }
        issue = draw.choice(self._keys["issue"])
        return {
            "id": f"c{number}",
            "issueId": issue,
            "authorId": author,
            "created": self._tick(),
            "body": f"comment number {number} about {issue}",
        }

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _put(self, table: str, row: Row) -> None:
        self.rows[table][row["id"]] = row
        self._keys[table].append(row["id"])

    def _pop(self, table: str) -> Row:
        keys = self._keys[table]
        at = self._random.randrange(len(keys))
        keys[at], keys[-1] = keys[-1], keys[at]
        return self.rows[table].pop(keys.pop())


def write(folder: Path, size: Size) -> None:
    """Make the workload in `folder`, which must exist."""
    world = World(size)
    document = {
        "columns": COLUMNS,
        "rows": {table: list(rows.values()) for table, rows in world.rows.items()},
        "pipelines": {
            name: {"ast": ast, "changes": list(world.fork().changes(tables_of(ast), size.changes))}
            for name, ast in pipelines().items()
        },
    }
    (folder / "workload.json").write_text(json.dumps(document, separators=(",", ":")))
    _write_replica(folder / "replica.db", world)


def _write_replica(path: Path, world: World) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    for table, columns in COLUMNS.items():
        body = ", ".join(f'"{name}" {SQL_TYPES[kind]}' for name, kind in columns.items())
        db.execute(f'CREATE TABLE "{table}" ({body}, PRIMARY KEY ("id"))')
        marks = ", ".join("?" * len(columns))
        db.executemany(
            f'INSERT INTO "{table}" VALUES ({marks})', (tuple(r.values()) for r in world.rows[table].values())
        )
        for index in INDEXES[table]:
            db.execute(f'CREATE INDEX "{table}_{"_".join(index)}" ON "{table}" ({", ".join(index)})')
    db.execute("ANALYZE")
    db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
