"""The requests a replicator makes."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from reference_cache.replica.stored_catalog import Origin
from reference_cache.replicator.settings import ReplicatorSettings

URL = "ws://user:secret@example.com:80/changes/v0/stream?apiKey=k%26y&lastWatermark=zz"
SETTINGS = ReplicatorSettings(URL, Path("replica.db"), Origin("zero", 2, frozenset({"b", "a"})), auto_reset=False)


def test_a_request_keeps_the_urls_own_parameters_and_sets_the_protocols() -> None:
    url = urlsplit(SETTINGS.url(SETTINGS.handshake("02", "01")))
    assert parse_qsl(url.query) == [
        *(("apiKey", "k&y"), ("appID", "zero"), ("shardNum", "2"), ("publications", "a"), ("publications", "b")),
        *(("lastWatermark", "02"), ("replicaVersion", "01")),
    ]
    assert url.netloc == "user:secret@example.com:80"


def test_an_initial_request_has_no_watermark_even_if_the_url_has() -> None:
    assert "lastWatermark" not in SETTINGS.url(SETTINGS.handshake())


def test_what_is_shown_of_the_url_has_no_secrets() -> None:
    assert SETTINGS.shown_upstream == "ws://example.com:80/changes/v0/stream"


def test_settings_survive_the_way_to_another_process() -> None:
    there = ReplicatorSettings.from_json(SETTINGS.to_json())
    assert there.origin == SETTINGS.origin
    assert there.replica_file == Path("replica.db").absolute()
    assert not there.auto_reset
