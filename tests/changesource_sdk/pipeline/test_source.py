"""A source travels as plain values, and those that an earlier release wrote mean the same."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from adapters.memory import MemoryStore
from changesource_sdk.ledger.adapter import LedgeredAdapter
from changesource_sdk.pipeline.mapped import MappedAdapter
from changesource_sdk.pipeline.mapping.declare import fingerprint
from changesource_sdk.pipeline.settings import PipelineSettings, command_line, read_settings
from changesource_sdk.pipeline.source import SourceSpec

MEMORY = "adapters.memory:MemoryAdapter"
MAPPED = "changesource_sdk.pipeline.mapped:MappedAdapter"
LEDGERED = "changesource_sdk.ledger.adapter:LedgeredAdapter"
MAPPING = {"person": {"name": "people"}}


def wrapped(settings: dict[str, object]) -> dict[str, object]:
    """A mapped source with a ledger as earlier releases wrote it to `pipeline.json`."""
    ledgered = {"adapter": MEMORY, "settings": settings, "ledger": "ledger.db"}
    return {"adapter": LEDGERED, "settings": ledgered, "mapping": MAPPING, "mappings": ""}


def test_settings_come_back_as_they_were_written(tmp_path: Path) -> None:
    source = SourceSpec(MEMORY, {"file": "x"}, ledger="ledger.db", mapping=MAPPING)
    pipeline = PipelineSettings(source, runner="spark", conf={"spark.x": "1"}, compact_after="10")
    command_line(pipeline, tmp_path)
    assert read_settings(tmp_path) == pipeline


def test_settings_of_an_earlier_release_are_read(tmp_path: Path) -> None:
    content = {"adapter": MAPPED, "settings": wrapped({"file": "x"}), "runner": "inline", "log": None}
    (tmp_path / "pipeline.json").write_text(json.dumps(content))
    source = SourceSpec(MEMORY, {"file": "x"}, ledger="ledger.db", mapping=MAPPING)
    assert read_settings(tmp_path) == PipelineSettings(source)
    (tmp_path / "pipeline.json").write_text(json.dumps({"adapter": MEMORY, "settings": {"file": "x"}}))
    assert read_settings(tmp_path) == PipelineSettings(SourceSpec(MEMORY, {"file": "x"}))


def test_the_identity_is_that_of_earlier_releases_so_unfinished_snapshots_are_resumed() -> None:
    source = SourceSpec(MEMORY, {"file": "x"}, ledger="ledger.db", mapping=MAPPING)
    content = (MAPPED, sorted(wrapped({"file": "x"}).items()), fingerprint(source.loaded_mappings()))
    assert source.identity() == sha256(repr(content).encode()).hexdigest()
    plain = (MEMORY, sorted({"file": "x"}.items()), fingerprint({}))
    assert SourceSpec(MEMORY, {"file": "x"}).identity() == sha256(repr(plain).encode()).hexdigest()


def test_mappings_are_around_the_ledger(tmp_path: Path) -> None:
    source = SourceSpec(MEMORY, {"store": MemoryStore([])}, ledger=str(tmp_path / "ledger"), mapping=MAPPING)
    adapter = source.factory()()
    assert isinstance(adapter, MappedAdapter)
    assert isinstance(adapter.inner, LedgeredAdapter)
    assert isinstance(source.unmapped().factory()(), LedgeredAdapter)
