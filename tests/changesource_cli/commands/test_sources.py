"""Commands that are given a file with several sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from changesource_cli.adapter_choice import chosen_sources, source_specs
from changesource_cli.app import app
from changesource_cli.commands.doctor import DoctorFinding, examine
from changesource_cli.commands.serve import effective_config
from changesource_cli.serving.run import _pipeline, _try_all
from changesource_sdk.config import ServeConfig
from changesource_sdk.errors import ConfigurationError


def config(folder: Path, **files: dict[str, list[dict[str, object]]]) -> Path:
    """A configuration file with a memory adapter per source, each over its own tables."""
    lines = [f'state = "{folder / "state"}"', 'listen = "127.0.0.1:0"']
    for name, tables in files.items():
        data = folder / f"{name}.json"
        data.write_text(json.dumps(tables))
        lines += [f"[sources.{name}]", 'adapter = "memory"', f'set = {{ file = "{data}" }}']
    path = folder / "changesource.toml"
    path.write_text("\n".join(lines))
    return path


def read(path: Path) -> ServeConfig:
    return effective_config(path, {}).config


def findings(path: Path) -> dict[str, DoctorFinding]:
    return {finding.check: finding for finding in examine(read(path))}


ROW: list[dict[str, object]] = [{"id": 1}]


def test_doctor_finds_a_table_that_two_sources_have(tmp_path: Path) -> None:
    found = findings(config(tmp_path, crm={"user": ROW}, shop={"item": ROW, "User": ROW}))
    assert not found["names"].ok
    assert 'prefix = "shop_"' in found["names"].fix
    assert "crm is adapters.memory:MemoryAdapter" in found["adapter"].message


def test_doctor_says_which_source_is_wrong(tmp_path: Path) -> None:
    path = config(tmp_path, crm={"user": ROW})
    path.write_text(path.read_text().replace("file =", "fil ="))
    adapter = findings(path)["adapter"]
    assert not adapter.ok
    assert "[sources.crm]" in adapter.message


def test_a_source_is_chosen_by_its_name(tmp_path: Path) -> None:
    both = read(config(tmp_path, crm={"user": ROW}, shop={"item": ROW}))
    assert [spec.name for spec in chosen_sources(both, None)] == ["crm", "shop"]
    assert [spec.name for spec in chosen_sources(both, "shop")] == ["shop"]
    with pytest.raises(ConfigurationError, match="shpo"):
        chosen_sources(both, "shpo")
    with pytest.raises(ConfigurationError, match="crm"):
        chosen_sources(ServeConfig(adapter="memory"), "crm")


def test_a_pipeline_gets_all_sources(tmp_path: Path) -> None:
    both = read(config(tmp_path, crm={"user": ROW}, shop={"item": ROW}))
    specs = source_specs(both)
    assert _try_all(specs) is None
    pipeline = _pipeline(both, specs)
    assert pipeline.source is None
    assert [spec.name for spec in pipeline.sources] == ["crm", "shop"]


def test_check_takes_the_name_of_a_source(tmp_path: Path) -> None:
    path = config(tmp_path, crm={"user": ROW})
    done = CliRunner().invoke(app, ["check", "crmm", "--config", str(path)])
    assert "crmm" in done.output
    path.write_text(path.read_text().replace("crm.json", "none.json"))
    done = CliRunner().invoke(app, ["check", "crm", "--config", str(path)])
    assert "memory-file" in done.output
