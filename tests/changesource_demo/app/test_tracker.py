"""What the demo's application answers: its query as an AST, its mutators in the store, its refusal."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from changesource_demo.app.tracker import SCHEMA, mutators, queries
from protocol.sync.ast_json import to_json
from reference_cache.app_server import ApplicationError
from reference_cache.app_server.stores.sqlite import SqliteStore
from reference_cache.app_server.stores.store import ClientKey

CLIENT = ClientKey("zero_0", "group", "client")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    path = tmp_path / "tracker.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE issue (id INTEGER PRIMARY KEY, title TEXT, status TEXT, modified REAL)")
        db.execute("INSERT INTO issue VALUES (1, 'Old', 'open', 0)")
    made = SqliteStore(path, SCHEMA)
    yield made
    made.close()


async def run(store: SqliteStore, name: str, argument: object) -> None:
    async with store.transaction(CLIENT) as transaction:
        await mutators.run(name, argument, transaction.tx)


def issue(folder: Path) -> tuple[object, ...]:
    with closing(sqlite3.connect(folder / "tracker.db")) as db:
        found: tuple[object, ...] = db.execute("SELECT title, status, modified > 0 FROM issue").fetchone()
        return found


async def test_pinned_issues_are_asked_for_by_name() -> None:
    ast = to_json(await queries.resolve("pinnedIssues"))
    assert (ast["table"], ast["orderBy"]) == ("issue", [["id", "asc"]])
    assert ast["where"]["left"] == {"type": "column", "name": "pinned"}


async def test_mutators_write_and_note_the_time(store: SqliteStore, tmp_path: Path) -> None:
    await run(store, "issue.setTitle", {"id": 1, "title": "New"})
    assert issue(tmp_path) == ("New", "open", 1)
    await run(store, "issue.setStatus", {"id": 1, "status": "done"})
    assert issue(tmp_path) == ("New", "done", 1)


@pytest.mark.parametrize(
    ("name", "argument", "why"),
    [
        ("issue.setTitle", {"id": 1, "title": "  "}, "A title cannot be empty"),
        ("issue.setStatus", {"id": 1, "status": "lost"}, "invalid arguments"),
        ("issue.explode", {"id": 1}, "not found"),
    ],
)
async def test_what_is_refused_changes_nothing(
    store: SqliteStore, tmp_path: Path, name: str, argument: object, why: str
) -> None:
    with pytest.raises(ApplicationError, match=why):
        await run(store, name, argument)
    assert issue(tmp_path) == ("Old", "open", 0)
