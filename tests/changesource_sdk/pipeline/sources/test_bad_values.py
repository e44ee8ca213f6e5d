"""Rows that no consumer can hold, in one of several sources: the others go on, and letters and skips have its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from changesource_cli.app import app
from changesource_sdk.adapter import Insert, Update
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from tests.changesource_sdk.pipeline.runner_fixtures import Watched
from tests.changesource_sdk.pipeline.sources.source_fixtures import (
    UPSTREAMS,
    error_code,
    insert,
    running,
    spec,
    stage,
    until_rows,
    upstream,
)

BAD = 5  # no text
runner = CliRunner()


@pytest.fixture
def log(tmp_path: Path) -> SqliteLogStore:
    UPSTREAMS.clear()
    upstream("crm", ["user"], rows=1)
    upstream("shop", ["item"], rows=1)
    return SqliteLogStore(tmp_path)


def letters(seen: Watched) -> set[tuple[str, str, str]]:
    return {(letter.source, letter.table, letter.row) for letter in seen.log.kept_aside().letters}


def skip(seen: Watched, *options: str) -> dict[str, object]:
    """Run the command, as an operator does."""
    words = ["skip", "--state", str(seen.store.layout.root), "--reason", "ticket 7", "--by", "ops", "--json", *options]
    done = runner.invoke(app, words)
    assert done.exit_code == 0, done.output
    asked = json.loads(done.stdout)
    assert isinstance(asked, dict)
    return asked


def test_each_source_has_the_policy_that_is_set_for_it(log: SqliteLogStore) -> None:
    upstream("lax", ["note"], rows=1)
    with running(
        log, spec("crm"), spec("shop", on_bad_value="dead-letter"), spec("lax", on_bad_value="dead-letter")
    ) as seen:
        until_rows(seen, {"user": {0}, "item": {0}, "note": {0}})
        for source, name in (("crm", "user"), ("shop", "item")):
            insert(source, name, 1, title=BAD)
            insert(source, name, 2)
        insert("lax", "note", 1)
        until_rows(seen, {"user": {0}, "item": {0, 2}, "note": {0, 1}})
        seen.until(lambda: error_code(seen, "crm") == "value-does-not-fit", "the error of crm")
        assert error_code(seen, "shop") is None
        assert letters(seen) == {("shop", "item", "id=1")}


def test_a_bad_row_of_a_read_follows_the_policy_of_its_source(log: SqliteLogStore) -> None:
    insert("crm", "user", 1, title=BAD)
    insert("shop", "item", 1, title=BAD)
    with running(log, spec("crm"), spec("shop", on_bad_value="dead-letter")) as seen:
        until_rows(seen, {"item": {0}})
        seen.until(lambda: error_code(seen, "crm") == "value-does-not-fit", "the error of crm")
        assert letters(seen) == {("shop", "item", "id=1")}
        assert skip(seen, "--source", "crm")["row"] == "id=1"
        until_rows(seen, {"item": {0}, "user": {0}})
        assert letters(seen) == {("shop", "item", "id=1"), ("crm", "user", "id=1")}


def test_a_skipped_row_of_one_source_is_listed_by_it_until_a_later_version_comes(log: SqliteLogStore) -> None:
    with running(log, spec("crm"), spec("shop")) as seen:
        until_rows(seen, {"user": {0}, "item": {0}})
        good = Insert("user", {"id": 1, "title": "t"})
        UPSTREAMS["crm"].store.commit([Update("user", {"id": 0, "title": BAD}), good])
        seen.until(lambda: error_code(seen, "crm") == "value-does-not-fit", "the error of crm")
        insert("shop", "item", 1)
        until_rows(seen, {"user": {0}, "item": {0, 1}})
        others = runner.invoke(app, ["skip", "--state", str(log.layout.root), "--source", "shop", "--reason", "x"])
        assert "nothing-to-skip" in others.output
        assert skip(seen, "--source", "crm")["table"] == "user"
        until_rows(seen, {"user": {1}, "item": {0, 1}})
        assert letters(seen) == {("crm", "user", "id=0")}
        (kept,) = seen.log.kept_aside().skips
        assert (kept.source, kept.row, kept.by, kept.reason) == ("crm", "id=0", "ops", "ticket 7")
        seen.until(lambda: "error" not in stage(seen, "crm") or stage(seen, "crm")["error"] is None, "no error")
        shown = runner.invoke(app, ["inspect", str(log.layout.root)]).output
        assert "crm: user id=0, column title: left out" in shown
        assert "skipped crm: row id=0 of user" in shown
        UPSTREAMS["crm"].store.commit([Update("user", {"id": 0, "title": "corrected"})])
        until_rows(seen, {"user": {0, 1}, "item": {0, 1}})
        assert letters(seen) == set()
        assert len(seen.log.kept_aside().skips) == 1


def test_a_skipped_transaction_of_one_source_leaves_the_others_as_they_are(log: SqliteLogStore) -> None:
    with running(log, spec("crm"), spec("shop")) as seen:
        until_rows(seen, {"user": {0}, "item": {0}})
        # Both upstreams are at position 2, so a skip without its source would name both transactions.
        insert("crm", "user", 1, 2, title=BAD)
        insert("shop", "item", 1, 2, title=BAD)
        for source in ("crm", "shop"):
            seen.until(lambda source=source: error_code(seen, source) == "value-does-not-fit", f"error of {source}")  # type: ignore[misc]
        skip(seen, "--source", "shop", "--transaction")
        insert("shop", "item", 3)
        until_rows(seen, {"user": {0}, "item": {0, 3}})
        assert letters(seen) == {("shop", "item", "id=1"), ("shop", "item", "id=2")}
        assert error_code(seen, "crm") == "value-does-not-fit"
        skip(seen, "--source", "crm", "--transaction")
        insert("crm", "user", 3)
        until_rows(seen, {"user": {0, 3}, "item": {0, 3}})


def test_letters_of_one_source_stay_when_another_is_read_again(log: SqliteLogStore) -> None:
    with running(log, spec("crm", on_bad_value="dead-letter"), spec("shop", on_bad_value="dead-letter")) as seen:
        until_rows(seen, {"user": {0}, "item": {0}})
        insert("crm", "user", 1, title=BAD)
        insert("shop", "item", 1, title=BAD)
        seen.until(lambda: len(letters(seen)) == 2, "both letters")
        UPSTREAMS["shop"].store.commit([Update("item", {"id": 1, "title": "corrected"})])
        seen.until(lambda: letters(seen) == {("crm", "user", "id=1")}, "the letter of crm alone")
        UPSTREAMS["shop"].lost = True
        UPSTREAMS["shop"].is_down = True
        insert("shop", "item", 2)
        seen.until(lambda: error_code(seen, "shop") == "adapter-failed", "shop down")
        UPSTREAMS["shop"].is_down = False
        seen.until(lambda: UPSTREAMS["shop"].reads == 2, "shop read again")
        until_rows(seen, {"user": {0}, "item": {0, 1, 2}})
        assert letters(seen) == {("crm", "user", "id=1")}
