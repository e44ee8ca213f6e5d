"""One case: a world, some queries, and the transactions pushed through them; as a value that can be saved.

A query may come late (`from`: after so many transactions) and leave early (`until`, exclusive).
A case is plain JSON, so a failure found at night is a file to replay in the morning: `tests/regressions/*.json`.
"""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

from tests.oracle.changes import Rows, make_transaction
from tests.oracle.queries import make_query
from tests.oracle.worlds import Json, make_world

REGRESSIONS = Path(__file__).parent.parent / "regressions"


def make_case(seed: int, *, queries: int, transactions: int) -> Json:
    """The case a seed stands for."""
    random = Random(seed)
    world = make_world(random)
    asked = [make_query(random, world) | _stay(random, transactions) for _ in range(queries)]
    tables = sorted(set().union(*(tables_of(query["ast"]) for query in asked)))
    rows = copy.deepcopy(world["rows"])
    steps = [make_transaction(random, world, rows, tables) for _ in range(transactions)]
    return {"seed": seed, **world, "queries": asked, "steps": steps}


def _stay(random: Random, transactions: int) -> Json:
    stay: Json = {}
    if transactions and random.random() < 0.2:
        stay["from"] = random.randint(1, transactions)
    elif transactions and random.random() < 0.2:
        stay["until"] = random.randint(1, transactions)
    return stay


def present(query: Json, transactions: int) -> bool:
    """Whether a query is live after so many transactions."""
    return bool(query.get("from", 0) <= transactions < query.get("until", transactions + 1))


def tables_of(value: Any) -> set[str]:
    """Every table named in a query, at any depth."""
    if isinstance(value, list):
        return set().union(*map(tables_of, value))
    if not isinstance(value, dict):
        return set()
    inner = set().union(*map(tables_of, value.values()))
    return inner | {value["table"]} if "table" in value else inner


def rows_of(case: Json) -> Rows:
    """A private copy of a case's initial rows."""
    return {table: list(rows) for table, rows in case["rows"].items()}


def save(case: Json, folder: Path = REGRESSIONS) -> Path:
    """Write a case to a file named after its contents."""
    text = json.dumps(case, indent=1, ensure_ascii=False)
    path = folder / f"engine-{hashlib.sha256(text.encode()).hexdigest()[:10]}.json"
    path.write_text(text + "\n", encoding="utf-8")
    return path


def load(path: Path) -> Json:
    case: Json = json.loads(path.read_text(encoding="utf-8"))
    return case
