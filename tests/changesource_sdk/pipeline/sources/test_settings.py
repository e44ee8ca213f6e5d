"""The settings of a pipeline with several sources, through the file that its process reads."""

from __future__ import annotations

from pathlib import Path

from changesource_sdk.pipeline.settings import PipelineSettings, command_line, read_settings
from changesource_sdk.pipeline.source import SourceSpec


def test_sources_survive_the_file(tmp_path: Path) -> None:
    one = SourceSpec("a:B", {"url": "x"}, name="crm", prefix="c_")
    two = SourceSpec("a:C", mapping={"t": {"name": "u"}}, name="shop")
    command_line(PipelineSettings(None, sources=[one, two]), tmp_path)
    settings = read_settings(tmp_path)
    assert settings.source is None
    assert list(settings.sources) == [one, two]


def test_a_file_of_an_earlier_release_has_one_source(tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_text('{"source": {"adapter": "a:B"}, "runner": "inline"}')
    settings = read_settings(tmp_path)
    assert settings.source == SourceSpec("a:B")
    assert settings.sources == ()
