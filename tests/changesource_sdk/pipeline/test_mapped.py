"""A mapped source in a running pipeline: consumers never see what a mapping hides, and a new mapping is a new start."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.pipeline.mapping.declare import TableMapping
from changesource_sdk.pipeline.mapping.fingerprint import renew_if_changed
from changesource_sdk.pipeline.source import SourceSpec
from tests.changesource_sdk.pipeline.mapping.people import MAPPINGS
from tests.changesource_sdk.pipeline.runner_fixtures import running

SQLITE = "adapters.sqlite:SqliteAdapter"
PYTHON = "tests.changesource_sdk.pipeline.mapping.people:MAPPINGS"


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    store = sqlite3.connect(tmp_path / "people.db", isolation_level=None)
    store.execute("PRAGMA journal_mode=WAL")
    store.execute("CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT, age INTEGER)")
    people = [(1, "Ada", "ada@x.org", 36), (2, "Kid", "kid@x.org", 8)]
    store.executemany("INSERT INTO person VALUES (?, ?, ?, ?)", people)
    return store


def mapped_people(folder: Path, mapping: dict[str, object] | None = None) -> Callable[[], Adapter]:
    given = {} if mapping is None else {"person": mapping}
    python = "" if mapping is not None else PYTHON
    return SourceSpec(SQLITE, {"path": str(folder / "people.db")}, mapping=given, mappings=python).factory()


def rows(payloads: list[bytes]) -> list[tuple[str, str, dict[str, Any]]]:
    """Row changes as (tag, table, what)."""
    found = [json.loads(payload)[1] for payload in payloads if json.loads(payload)[0] == "data"]
    return [
        (change["tag"], change["relation"]["name"], change.get("new") or change.get("key"))
        for change in found
        if "relation" in change
    ]


def test_snapshot_and_tail_show_the_same_mapped_rows(tmp_path: Path, database: sqlite3.Connection) -> None:
    ada = {"id": 1, "label": "Ada", "email": "***", "label_length": 3}
    with running(mapped_people(tmp_path), tmp_path / "state") as seen:
        seen.until_generation(1)
        assert rows(seen.snapshot_payloads()) == [("insert", "adult", ada)]
        head = seen.log.state().head
        database.execute("UPDATE person SET age = 18 WHERE id = 2")
        seen.until(lambda: seen.log.state().head > head, "the first change")
        head = seen.log.state().head
        database.execute("UPDATE person SET age = 17 WHERE id = 1")
        seen.until(lambda: seen.log.state().head > head, "the second change")
        kid = {"id": 2, "label": "Kid", "email": "***", "label_length": 3}
        assert rows(seen.log_payloads()) == [("insert", "adult", kid), ("delete", "adult", {"id": 1})]
        assert not any(b"x.org" in payload for payload in seen.snapshot_payloads() + seen.log_payloads())


def test_a_mapping_that_the_store_contradicts_is_told_with_its_key(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    with running(mapped_people(tmp_path, {"select": ["id", "mail"]}), tmp_path / "state") as seen:
        seen.until(lambda: seen.error_code() == "bad-mapping", "the error")
        error = seen.stage()["error"]
        assert isinstance(error, dict)
        assert error["where"] == "mapping.person.select"
        assert "email" in error["fix"]


def test_another_mapping_starts_a_new_generation(tmp_path: Path, database: sqlite3.Connection) -> None:
    store = SqliteLogStore(tmp_path / "state")
    renew_if_changed(store, MAPPINGS)
    with running(mapped_people(tmp_path), tmp_path / "state") as seen:
        seen.until_generation(1)
    renew_if_changed(store, MAPPINGS)
    assert store.requests.pending_snapshot() is None
    renew_if_changed(store, {"person": TableMapping(select=["id"])})
    with running(mapped_people(tmp_path, {"select": ["id"]}), tmp_path / "state") as seen:
        seen.until_generation(2)
        assert sorted(rows(seen.snapshot_payloads()), key=str) == [
            ("insert", "person", {"id": 1}),
            ("insert", "person", {"id": 2}),
        ]


def test_a_source_without_mappings_is_left_as_it_is() -> None:
    assert not SourceSpec(SQLITE, {"path": "x"}).is_mapped
    assert SourceSpec(SQLITE, {"path": "x"}).loaded_mappings() == {}
    assert SourceSpec(SQLITE, {"path": "x"}, mappings=PYTHON).loaded_mappings() == MAPPINGS
