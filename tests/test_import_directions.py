"""Packages import in one direction, rooms (folders) in none that leads back, and no room is too full to look through.

`tests/rooms.py` has the table of what each room may import.
"""

from __future__ import annotations

import re

import changesource_sdk
from changesource_sdk import toolkit
from tests.rooms import (
    KNOWN_CYCLES,
    MAY_IMPORT,
    MAY_IMPORT_TEST_KIT,
    MOST_MODULES,
    PACKAGES,
    ROOMS,
    ROOT,
    TEST_KIT,
    cycles,
    imported_by,
    imports,
    modules,
    room_imports,
    sizes,
)


def test_packages_import_only_what_they_may() -> None:
    wrong = []
    for module, imported in imports():
        package, other = module.split("."), imported.split(".")
        sibling = package[0] == other[0] == "adapters" and other[1:2] and other[1] != package[1]
        if other[0] not in MAY_IMPORT[package[0]] or sibling:
            wrong.append(f"{module} imports {imported}")
    assert wrong == []


def test_rooms_import_what_the_table_says() -> None:
    assert room_imports() == ROOMS, "see what changed: python -m tests.rooms --table"


def test_the_product_does_not_import_the_test_kit() -> None:
    users = {
        module
        for module, path in modules().items()
        if any(_is_in(imported, TEST_KIT) for imported in imported_by(path)) and not _is_in(module, TEST_KIT)
    }
    assert {module for module in users if not any(_is_in(module, room) for room in MAY_IMPORT_TEST_KIT)} == set()
    assert users, "a rule that nothing could break"


def _is_in(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def test_no_imports_lead_from_a_room_back_into_it() -> None:
    assert cycles(without=KNOWN_CYCLES) == []


def test_known_cycles_are_still_there() -> None:
    """One that is gone must leave the list."""
    assert set(KNOWN_CYCLES) <= set(imports())
    for known in KNOWN_CYCLES:
        assert cycles(without=[other for other in KNOWN_CYCLES if other != known]), known


def test_no_room_has_too_many_modules() -> None:
    assert {room: size for room, size in sizes().items() if size > MOST_MODULES} == {}


def test_every_package_is_examined() -> None:
    assert {room.split(".")[0] for room in sizes()} == set(PACKAGES)


def test_adapters_use_the_sdk_through_its_door() -> None:
    """What the bundled adapters need is there for everybody: exported, and described in docs/reference/adapter.md."""
    doors = {"changesource_sdk", "changesource_sdk.toolkit"}
    used = {
        (module, imported)
        for module, path in modules().items()
        if module.startswith("adapters.")
        for imported in imported_by(path)
        if imported.startswith("changesource_sdk")
    }
    assert {each for each in used if each[1] not in doors} == set()
    assert {imported for _, imported in used} == doors


def test_everything_behind_the_door_is_described() -> None:
    page = (ROOT / "docs" / "reference" / "adapter.md").read_text()
    assert [name for name in (*changesource_sdk.__all__, *toolkit.__all__) if not re.search(rf"\b{name}\b", page)] == []
