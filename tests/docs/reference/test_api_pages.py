"""The API pages name modules that exist, and every package that users import from has its page."""

from __future__ import annotations

import importlib
import re

from tests.docs.fences import ROOT

TEXTS = [page.read_text() for page in sorted((ROOT / "docs" / "reference" / "api").glob("*.md"))]
MODULES = [module for text in TEXTS for module in re.findall(r"^::: (\S+)$", text, re.M)]


def test_every_documented_module_exists_once() -> None:
    assert len(MODULES) == len(set(MODULES))
    for module in MODULES:
        importlib.import_module(module)


def test_every_package_that_users_import_from_is_documented() -> None:
    packages = {"changesource_sdk", "changesource_sdk.toolkit", "reference_cache.client", "reference_cache.app_server"}
    assert packages <= set(MODULES)
