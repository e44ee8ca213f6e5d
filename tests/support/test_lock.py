"""The lock file holds exactly the pinned versions, each with the hashes of its files."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from tests.support.lock import CONSTRAINTS, EXTRAS, LOCK, pinned
from tests.support.tools import REPOSITORY


def test_every_locked_version_is_the_one_that_is_tested() -> None:
    locked, constrained = pinned(LOCK.read_text()), pinned(CONSTRAINTS.read_text())
    assert {name: version for name, version in locked.items() if constrained.get(name) != version} == {}


def test_every_locked_package_has_a_hash() -> None:
    entries = re.split(r"\n(?=\S)", LOCK.read_text().strip())
    assert len(entries) == len(pinned(LOCK.read_text()))
    assert [each.split()[0] for each in entries if "--hash=sha256:" not in each] == []


def test_everything_that_users_install_is_locked() -> None:
    project: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *(each for extra in EXTRAS for each in project["optional-dependencies"][extra])]
    names = {re.split(r"[\[<>=!~ ;]", each)[0].lower() for each in needed}
    assert names - set(pinned(LOCK.read_text())) == set()
    assert set(project["optional-dependencies"]) - set(EXTRAS) == {"dev"}


def test_the_lock_names_no_host() -> None:
    assert "://" not in LOCK.read_text()
