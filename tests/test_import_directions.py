"""The layers of architecture §1: data moves left to right, and so do imports."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "changesource_sdk", "adapters", "reference_cache")

MAY_IMPORT = {
    "protocol": {"protocol"},
    "changesource_sdk": {"changesource_sdk", "protocol"},
    "adapters": {"adapters", "changesource_sdk", "protocol"},
    "reference_cache": {"reference_cache", "protocol"},
}


def imported_modules(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.append(node.module)
    return names


def forbidden_imports() -> list[str]:
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "templates" in path.parts:
                continue
            own_adapter = path.relative_to(ROOT).parts[1] if package == "adapters" else None
            for name in imported_modules(path):
                top, _, rest = name.partition(".")
                if top not in PACKAGES:
                    continue
                sibling = top == "adapters" == package and rest and rest.split(".")[0] != own_adapter
                if top not in MAY_IMPORT[package] or sibling:
                    found.append(f"{path.relative_to(ROOT)} imports {name}")
    return found


def test_imports_go_left_to_right() -> None:
    assert forbidden_imports() == []


def test_every_package_is_looked_at() -> None:
    assert all(list((ROOT / package).rglob("*.py")) for package in PACKAGES)
