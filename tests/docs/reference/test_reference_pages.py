"""The reference pages in the repository are what the code makes, and leave nothing out."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass

import pytest
from typer.testing import CliRunner

import changesource_sdk
from changesource_cli.app import NAMES, app
from changesource_sdk import toolkit
from reference_cache.config import settings
from tests.docs.adapter_page import MARKER
from tests.docs.fences import ROOT
from tests.docs.reference_pages import ADAPTERS, FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_makes(name: str) -> None:
    assert (ROOT / FOLDER / name).read_text() == PAGES[name](), "run: python -m tests.docs.reference_pages"


def test_help_that_was_shown_before_changes_nothing() -> None:
    before = PAGES["command-line.md"]()
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"})
    assert "Now: " in shown.output
    assert PAGES["command-line.md"]() == before


def test_every_command_has_its_section_with_examples() -> None:
    sections = re.split(r"^## changesource ", PAGES["command-line.md"](), flags=re.M)[1:]
    assert [section.split()[0] for section in sections] == list(NAMES)
    assert [section.split()[0] for section in sections if "```text\n" not in section] == []


def test_every_adapter_that_is_configured_by_settings_and_every_variable_is_listed() -> None:
    page = PAGES["settings.md"]()
    assert re.findall(r"^## Adapter `([a-z-]+)`", page, re.M) == list(ADAPTERS)
    assert [each.metadata["variable"] for each in settings() if f"`{each.metadata['variable']}`" not in page] == []


def test_the_page_of_the_contract_lists_every_field_of_every_class() -> None:
    page = PAGES["adapter.md"]()
    sections = dict(re.findall(r"^#### `(\w+)`\n(.*?)(?=^##|\Z)", page, re.M | re.S))
    for name in changesource_sdk.__all__:
        value = getattr(changesource_sdk, name)
        if not inspect.isclass(value):
            continue
        listed = set(re.findall(r"^\| `(\w+)", sections[name], re.M))
        assert {field.name for field in fields(value)} <= listed if is_dataclass(value) else True, name
        own = {each for each, member in vars(value).items() if inspect.isfunction(member) and not each.startswith("_")}
        assert own <= listed, name
    assert [name for name in toolkit.__all__ if f"| `{name}` |" not in page] == []


def test_what_is_written_by_hand_stays() -> None:
    page = PAGES["adapter.md"]()
    assert page.startswith("# The adapter contract\n")
    assert page.count(MARKER) == 1
