"""An HTTP API without a log, to the official zero-cache: its replica is what the API lists, and a client follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fakes.notes_api import NotesApi
from tests.support.fixtures.zero_cache import MakeZeroCache, MakeZeroClient
from tests.support.peers.serving import Serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
NOTE = {"note": {"id": "number", "text": "string", "stars": "number"}}


def test_the_official_cache_follows_an_api_that_keeps_no_log(
    zero_cache: MakeZeroCache, zero_client: MakeZeroClient, tmp_path: Path
) -> None:
    options = ("--permissions", "allow-all", "--runner", "inline")
    with NotesApi() as api:
        for id in range(1, 9):
            api.put(id, f"note {id}")
        settings = {"url": api.url, "poll": "0.1"}
        adapter = "examples.http_notes.http_notes:HttpNotes"
        with Serving(adapter, settings, tmp_path / "state", options=options) as serving:
            serving.start()
            cache = zero_cache(serving.stream_url).start()
            client = zero_client(cache, NOTE)
            client.wait_for_rows("note", _rows(api))
            api.put(9, "new")
            api.put(2, "changed")
            api.delete(5)
            client.wait_for_rows("note", _rows(api))
            assert serving.kill_pipeline()
            api.delete(1)
            api.put(10, "while it was down")
            client.wait_for_rows("note", _rows(api))
            assert cache.replica.rows("note", ["id", "text", "stars"]) == [
                (id, note["text"], note["stars"]) for id, note in sorted(api.notes.items())
            ]


def _rows(api: NotesApi) -> list[dict[str, object]]:
    return [api.notes[id] for id in sorted(api.notes)]
