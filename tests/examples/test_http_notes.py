"""The example of an HTTP API: against a real server, through the endpoint to a consumer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from changesource_sdk import Change, Position
from changesource_sdk.testing.fake_cache import FakeCache
from examples.http_notes.http_notes import HttpNotes, seconds
from protocol import rules
from tests.support.fakes.notes_api import NotesApi
from tests.support.peers.serving import Serving
from tests.support.waiting import until


@pytest.fixture
def api() -> Iterator[NotesApi]:
    with NotesApi() as api:
        for id in range(1, 9):
            api.put(id, f"note {id}")
        yield api


def notes_adapter(api: NotesApi, folder: Path) -> HttpNotes:
    return HttpNotes(api.url, str(folder))  # type: ignore[no-untyped-call]


def poll(adapter: HttpNotes, position: Position) -> list[Change]:
    """The changes of the next poll, after the pause that follows a listing."""
    return [change for _ in range(2) for each in adapter.changes(position) for change in each.changes]


def test_an_unchanged_collection_costs_one_conditional_request(api: NotesApi, tmp_path: Path) -> None:
    adapter = notes_adapter(api, tmp_path)
    position = adapter.snapshot().position
    api.answers.clear()
    assert poll(adapter, position) == []
    assert (api.answers[304], api.answers[200]) == (1, 0)


def test_a_listing_waits_for_the_rate_limit_and_goes_on(api: NotesApi, tmp_path: Path) -> None:
    snapshot = notes_adapter(api, tmp_path).snapshot()
    assert sum(len(list(partition.rows())) for partition in snapshot.partitions) == 8
    assert (api.answers[429], api.answers[200]) == (0, 3)
    snapshot = notes_adapter(api, tmp_path).snapshot()
    assert sum(len(list(partition.rows())) for partition in snapshot.partitions) == 8
    assert (api.answers[429], api.answers[200]) == (1, 6)


def test_a_server_that_fails_between_pages_deletes_nothing(api: NotesApi, tmp_path: Path) -> None:
    adapter = notes_adapter(api, tmp_path)
    position = adapter.snapshot().position
    api.put(1, "changed")
    api.is_broken = True
    with pytest.raises(HTTPError, match="500"):
        poll(adapter, position)
    api.is_broken = False
    assert [type(change).__name__ for change in poll(adapter, position)] == ["Update"]


@pytest.mark.parametrize(("header", "expected"), [("7", 7.0), (None, 5.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 5.0)])
def test_retry_after_in_all_its_forms(header: str | None, expected: float) -> None:
    assert seconds(header) == expected  # type: ignore[no-untyped-call]


async def test_notes_reach_a_consumer_through_the_endpoint(api: NotesApi, tmp_path: Path) -> None:
    options = ("--permissions", "allow-all", "--runner", "inline", "--grace", "1")
    settings = {"url": api.url, "poll": "0.05"}
    with Serving("examples.http_notes.http_notes:HttpNotes", settings, tmp_path / "state", options=options) as serving:
        serving.start()
        cache = FakeCache(serving.stream_url, timeout=30)
        await cache.initial_sync()
        async with cache.stream():
            api.put(9, "new", stars=5)
            api.put(2, "changed")
            api.delete(5)
            await cache.until(lambda: _texts(cache) == _notes(api))
        assert serving.kill_pipeline()
        api.delete(1)
        api.put(10, "while it was down")
        async with cache.stream():
            await cache.until(lambda: _texts(cache) == _notes(api))
        until(lambda: api.answers[304] > 0, "a conditional request")
        assert api.answers[429] > 0
        assert rules.check(cache.transcript) == []


def _texts(cache: FakeCache) -> dict[object, object]:
    return {row["id"]: (row["text"], row["stars"]) for row in cache.rows("note").values()}


def _notes(api: NotesApi) -> dict[object, object]:
    return {note["id"]: (note["text"], note["stars"]) for note in api.notes.values()}
