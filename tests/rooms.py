"""The rooms of the product: its folders, what each is for, and which others it may import.

`python -m tests.rooms` prints them as a Markdown table, `python -m tests.rooms --table` as they are written below.

A room is a package with its own modules, without those of the packages inside it. Two things do not count as imports:
what an `__init__.py` imports, since it is the door of its package and not a part of a room, and what is imported at run
time by name. Imports for type checking count.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "protocol",
    "service_kit",
    "changesource_sdk",
    "adapters",
    "reference_cache",
    "changesource_demo",
    "changesource_cli",
)
MOST_MODULES = 15
"""In one room, `__init__.py` not counted."""

MAY_IMPORT = {
    "protocol": {"protocol"},
    "service_kit": {"service_kit", "protocol"},
    "changesource_sdk": {"changesource_sdk", "service_kit", "protocol"},
    "adapters": {"adapters", "changesource_sdk", "protocol"},
    "reference_cache": {"reference_cache", "service_kit", "protocol"},
    "changesource_demo": {"changesource_demo", "changesource_sdk", "reference_cache", "service_kit", "protocol"},
    "changesource_cli": {
        "changesource_cli",
        "changesource_demo",
        "changesource_sdk",
        "reference_cache",
        "service_kit",
        "protocol",
    },
}
"""The packages. `changesource_cli` and `changesource_demo` are the composition root: nothing else imports both the SDK
and the cache."""

TEST_KIT = "changesource_sdk.testing"
MAY_IMPORT_TEST_KIT = ("changesource_cli",)
"""`changesource check` runs the conformance suite. No other code of the product may import the kit for users' tests."""

KNOWN_CYCLES = [
    # For type checking only: a running query names the client groups it runs for.
    ("reference_cache.view_syncer.pipelines.live_query", "reference_cache.view_syncer.client_group"),
]
"""(module, imported): imports that close a cycle between rooms. The list may only become shorter."""

# fmt: off
ROOMS: dict[str, tuple[str, ...]] = {
    "adapters.kafka": ("adapters.kafka.broker", "adapters.kafka.keys", "adapters.kafka.records",
        "adapters.kafka.topics", "adapters.kafka.transactions",),
    "adapters.kafka.broker": ("adapters.kafka", "adapters.kafka.transactions",),
    "adapters.kafka.keys": ("adapters.kafka", "adapters.kafka.broker", "adapters.kafka.records",
        "adapters.kafka.topics",),
    "adapters.kafka.records": ("adapters.kafka", "adapters.kafka.transactions",),
    "adapters.kafka.topics": ("adapters.kafka", "adapters.kafka.broker", "adapters.kafka.records",
        "adapters.kafka.transactions",),
    "adapters.kafka.transactions": (),
    "adapters.memory": (),
    "adapters.postgres": ("adapters.postgres.catalog", "adapters.postgres.replication",
        "adapters.postgres.schema_changes",),
    "adapters.postgres.catalog": ("adapters.postgres",),
    "adapters.postgres.replication": ("adapters.postgres", "adapters.postgres.catalog",),
    "adapters.postgres.schema_changes": ("adapters.postgres", "adapters.postgres.catalog",
        "adapters.postgres.replication",),
    "adapters.spark_tables": ("adapters.spark_tables.delta", "adapters.spark_tables.difference",
        "adapters.spark_tables.readers", "adapters.spark_tables.rows",),
    "adapters.spark_tables.delta": ("adapters.spark_tables", "adapters.spark_tables.difference",
        "adapters.spark_tables.readers", "adapters.spark_tables.rows",),
    "adapters.spark_tables.difference": ("adapters.spark_tables", "adapters.spark_tables.readers",
        "adapters.spark_tables.rows",),
    "adapters.spark_tables.readers": ("adapters.spark_tables", "adapters.spark_tables.rows",),
    "adapters.spark_tables.rows": ("adapters.spark_tables",),
    "adapters.sqlite": ("adapters.sqlite.catalog",),
    "adapters.sqlite.catalog": ("adapters.sqlite",),
    "changesource_cli": ("changesource_cli.commands",),
    "changesource_cli.checks": ("changesource_cli",),
    "changesource_cli.commands": ("changesource_cli", "changesource_cli.checks", "changesource_cli.serving",),
    "changesource_cli.serving": ("changesource_cli",),
    "changesource_demo": (),
    "changesource_demo.app": (),
    "changesource_sdk": ("changesource_sdk.policies",),
    "changesource_sdk.by_difference": ("changesource_sdk", "changesource_sdk.pipeline.encoding",),
    "changesource_sdk.changelog": ("changesource_sdk", "changesource_sdk.changelog.coordination",
        "changesource_sdk.changelog.files", "changesource_sdk.changelog.postgres",
        "changesource_sdk.changelog.spool", "changesource_sdk.changelog.sqlite",),
    "changesource_sdk.changelog.coordination": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.files", "changesource_sdk.changelog.spool",),
    "changesource_sdk.changelog.files": ("changesource_sdk",),
    "changesource_sdk.changelog.postgres": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.coordination", "changesource_sdk.changelog.files",
        "changesource_sdk.changelog.spool",),
    "changesource_sdk.changelog.spool": ("changesource_sdk", "changesource_sdk.changelog.files",),
    "changesource_sdk.changelog.sqlite": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.coordination", "changesource_sdk.changelog.files",
        "changesource_sdk.changelog.spool",),
    "changesource_sdk.checking": ("changesource_sdk",),
    "changesource_sdk.endpoint": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.coordination", "changesource_sdk.changelog.sqlite",
        "changesource_sdk.endpoint.access", "changesource_sdk.endpoint.stream", "changesource_sdk.observe",
        "changesource_sdk.policies",),
    "changesource_sdk.endpoint.access": ("changesource_sdk", "changesource_sdk.policies",),
    "changesource_sdk.endpoint.stream": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.coordination", "changesource_sdk.changelog.spool",
        "changesource_sdk.endpoint.access", "changesource_sdk.observe", "changesource_sdk.pipeline.encoding",),
    "changesource_sdk.ledger": ("changesource_sdk",),
    "changesource_sdk.observe": ("changesource_sdk", "changesource_sdk.changelog.coordination",),
    "changesource_sdk.pipeline": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.coordination", "changesource_sdk.changelog.files", "changesource_sdk.ledger",
        "changesource_sdk.observe", "changesource_sdk.pipeline.compaction", "changesource_sdk.pipeline.encoding",
        "changesource_sdk.pipeline.mapping", "changesource_sdk.pipeline.snapshot",
        "changesource_sdk.pipeline.sources", "changesource_sdk.pipeline.spark",
        "changesource_sdk.pipeline.spark.lanes", "changesource_sdk.policies",),
    "changesource_sdk.pipeline.compaction": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.files", "changesource_sdk.changelog.spool", "changesource_sdk.observe",
        "changesource_sdk.pipeline", "changesource_sdk.pipeline.encoding", "changesource_sdk.policies",),
    "changesource_sdk.pipeline.encoding": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.spool", "changesource_sdk.policies",),
    "changesource_sdk.pipeline.mapping": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.files", "changesource_sdk.observe", "changesource_sdk.pipeline.encoding",),
    "changesource_sdk.pipeline.snapshot": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.files", "changesource_sdk.changelog.spool",
        "changesource_sdk.pipeline.encoding", "changesource_sdk.pipeline.mapping",),
    "changesource_sdk.pipeline.sources": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.files", "changesource_sdk.changelog.spool", "changesource_sdk.observe",
        "changesource_sdk.pipeline", "changesource_sdk.pipeline.compaction", "changesource_sdk.pipeline.encoding",
        "changesource_sdk.pipeline.snapshot", "changesource_sdk.policies",),
    "changesource_sdk.pipeline.spark": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.observe", "changesource_sdk.pipeline", "changesource_sdk.pipeline.compaction",
        "changesource_sdk.pipeline.mapping", "changesource_sdk.pipeline.snapshot",
        "changesource_sdk.pipeline.sources", "changesource_sdk.pipeline.spark.lanes", "changesource_sdk.policies",),
    "changesource_sdk.pipeline.spark.lanes": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.spool", "changesource_sdk.observe", "changesource_sdk.pipeline",
        "changesource_sdk.pipeline.compaction", "changesource_sdk.pipeline.encoding",
        "changesource_sdk.pipeline.mapping", "changesource_sdk.pipeline.snapshot",
        "changesource_sdk.pipeline.spark", "changesource_sdk.pipeline.spark.sql",),
    "changesource_sdk.pipeline.spark.sql": ("changesource_sdk", "changesource_sdk.changelog.spool",
        "changesource_sdk.observe", "changesource_sdk.pipeline", "changesource_sdk.pipeline.encoding",
        "changesource_sdk.pipeline.mapping", "changesource_sdk.pipeline.snapshot",
        "changesource_sdk.pipeline.spark",),
    "changesource_sdk.policies": (),
    "changesource_sdk.replaying": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.coordination", "changesource_sdk.changelog.files",
        "changesource_sdk.changelog.sqlite",),
    "changesource_sdk.seed": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.coordination", "changesource_sdk.changelog.files",
        "changesource_sdk.changelog.spool", "changesource_sdk.endpoint", "changesource_sdk.endpoint.stream",
        "changesource_sdk.observe", "changesource_sdk.pipeline.compaction", "changesource_sdk.pipeline.encoding",
        "changesource_sdk.pipeline.spark", "changesource_sdk.pipeline.spark.lanes",),
    "changesource_sdk.testing": (),
    "changesource_sdk.testing.conformance": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.spool", "changesource_sdk.changelog.sqlite", "changesource_sdk.pipeline",
        "changesource_sdk.pipeline.encoding", "changesource_sdk.pipeline.snapshot", "changesource_sdk.testing",
        "changesource_sdk.testing.conformance.cases", "changesource_sdk.testing.faults",
        "changesource_sdk.verifying",),
    "changesource_sdk.testing.conformance.cases": ("changesource_sdk", "changesource_sdk.endpoint",
        "changesource_sdk.pipeline", "changesource_sdk.pipeline.snapshot", "changesource_sdk.testing",
        "changesource_sdk.testing.conformance",),
    "changesource_sdk.testing.faults": ("changesource_sdk", "changesource_sdk.changelog.files",
        "changesource_sdk.pipeline",),
    "changesource_sdk.verifying": ("changesource_sdk", "changesource_sdk.changelog",
        "changesource_sdk.changelog.coordination", "changesource_sdk.changelog.spool",
        "changesource_sdk.pipeline.encoding", "changesource_sdk.pipeline.snapshot", "changesource_sdk.policies",),
    "protocol": (),
    "protocol.fold": ("protocol",),
    "protocol.rules": ("protocol", "protocol.fold", "protocol.stream",),
    "protocol.stream": ("protocol",),
    "protocol.sync": ("protocol",),
    "reference_cache": ("reference_cache.app_client", "reference_cache.replica", "reference_cache.replicator",
        "reference_cache.sync_server", "reference_cache.sync_server.access", "reference_cache.view_syncer",
        "reference_cache.view_syncer.cvr",),
    "reference_cache.app_client": ("reference_cache", "reference_cache.view_syncer",),
    "reference_cache.app_server": ("reference_cache.app_server.stores", "reference_cache.zql",
        "reference_cache.zql.query",),
    "reference_cache.app_server.stores": ("reference_cache.app_server", "reference_cache.zql",
        "reference_cache.zql.query",),
    "reference_cache.client": ("reference_cache", "reference_cache.client.local", "reference_cache.zql",
        "reference_cache.zql.ivm", "reference_cache.zql.query",),
    "reference_cache.client.local": ("reference_cache.client", "reference_cache.zql", "reference_cache.zql.engine",
        "reference_cache.zql.ivm", "reference_cache.zql.query", "reference_cache.zql.tables",),
    "reference_cache.query": ("reference_cache.zql", "reference_cache.zql.query",),
    "reference_cache.replica": ("reference_cache.zql", "reference_cache.zql.ivm", "reference_cache.zql.tables",),
    "reference_cache.replica.writing": ("reference_cache.replica",),
    "reference_cache.replicator": ("reference_cache.replica", "reference_cache.replica.writing",),
    "reference_cache.sync_server": ("reference_cache", "reference_cache.app_client",
        "reference_cache.sync_server.access", "reference_cache.view_syncer",),
    "reference_cache.sync_server.access": ("reference_cache",),
    "reference_cache.view_syncer": ("reference_cache", "reference_cache.replica",
        "reference_cache.view_syncer.cvr", "reference_cache.view_syncer.pipelines", "reference_cache.zql",
        "reference_cache.zql.engine", "reference_cache.zql.ivm", "reference_cache.zql.query",),
    "reference_cache.view_syncer.cvr": ("reference_cache.replica", "reference_cache.zql",
        "reference_cache.zql.engine",),
    "reference_cache.view_syncer.pipelines": ("reference_cache", "reference_cache.replica",
        "reference_cache.view_syncer", "reference_cache.view_syncer.cvr", "reference_cache.zql",
        "reference_cache.zql.engine", "reference_cache.zql.ivm", "reference_cache.zql.planner",
        "reference_cache.zql.query", "reference_cache.zql.tables",),
    "reference_cache.zql": (),
    "reference_cache.zql.engine": ("reference_cache.zql", "reference_cache.zql.ivm",
        "reference_cache.zql.ivm.operators", "reference_cache.zql.planner", "reference_cache.zql.query",),
    "reference_cache.zql.ivm": ("reference_cache.zql",),
    "reference_cache.zql.ivm.operators": ("reference_cache.zql", "reference_cache.zql.ivm",),
    "reference_cache.zql.planner": (),
    "reference_cache.zql.query": ("reference_cache.zql",),
    "reference_cache.zql.tables": ("reference_cache.zql", "reference_cache.zql.ivm", "reference_cache.zql.planner",),
    "service_kit": (),
}
# fmt: on
"""Which rooms the modules of a room import, within its package."""

Import = tuple[str, str]


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by its dotted name; packages are named after their folder."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "templates" not in path.parts:
                parts = path.relative_to(ROOT).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> tuple[Import, ...]:
    """(module, imported module of the product), doors left out on both sides."""
    doors = {name for name, path in modules().items() if path.name == "__init__.py"}
    found = []
    for name, path in modules().items():
        if name not in doors:
            found += [(name, other) for other in sorted(set(imported_by(path))) if other not in doors]
    return tuple(found)


def imported_by(path: Path) -> Iterator[str]:
    """The modules and packages of the product that a file imports."""
    known = modules()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known or node.module in known:
                    yield full if full in known else node.module


def room_of(module: str) -> str:
    return module.rpartition(".")[0]


def room_imports() -> dict[str, tuple[str, ...]]:
    """What `ROOMS` should say."""
    found: dict[str, set[str]] = {room: set() for room in sizes()}
    for module, other in imports():
        if room_of(module) != room_of(other) and module.split(".")[0] == other.split(".")[0]:
            found[room_of(module)].add(room_of(other))
    return {room: tuple(sorted(others)) for room, others in sorted(found.items())}


def sizes() -> dict[str, int]:
    """How many modules each room has."""
    return dict(Counter(room_of(name) for name, path in modules().items() if path.name != "__init__.py"))


def cycles(without: Collection[Import]) -> list[str]:
    """Rooms that import one another, at any level of the tree.

    A level is a package; what is directly in it, modules and packages alike, must not form a cycle that goes through
    a package. So a module may use the folders next to it, which may use other modules next to them, but never in a
    circle.
    """
    levels: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module, other in imports():
        if (module, other) not in without:
            level, child, used = _where_they_part(module, other)
            levels[level][child].add(used)
    found = []
    for level, edges in sorted(levels.items()):
        for child in sorted(edges):
            if (ROOT / level.replace(".", "/") / child).is_dir() and child in _reached(edges, child):
                found.append(f"{level}.{child}".lstrip("."))
    return found


def _where_they_part(module: str, other: str) -> tuple[str, str, str]:
    left, right = module.split("."), other.split(".")
    same = next(at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
    return ".".join(left[:same]), left[same], right[same]


def _reached(edges: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for child in edges.get(waiting.pop(), set()) - reached:
            reached.add(child)
            waiting.append(child)
    return reached


def purpose(room: str) -> str:
    """What a room is for: the first line of its door's docstring."""
    text = ast.get_docstring(ast.parse((ROOT / room.replace(".", "/") / "__init__.py").read_text())) or ""
    return text.partition("\n")[0]


def as_markdown() -> str:
    lines = ["| room | modules | for | imports, within its package |", "| --- | --- | --- | --- |"]
    for room, others in ROOMS.items():
        package = room.split(".")[0]
        names = ", ".join(f"`{other.removeprefix(f'{package}.')}`" for other in others)
        lines.append(f"| `{room}` | {sizes()[room]} | {purpose(room)} | {names or '–'} |")
    return "\n".join(lines)


def as_python(table: dict[str, tuple[str, ...]]) -> str:
    """The table as it is written in this file, a line or more for each room."""
    lines = []
    for room, others in table.items():
        line = f'    "{room}": ('
        for other in others:
            if len(line) + len(other) > 112:
                lines.append(line.rstrip())
                line = " " * 8
            line += f'"{other}", '
        lines.append(line.rstrip(" ") + "),")
    return "\n".join(lines)


if __name__ == "__main__":
    print(as_python(room_imports()) if "--table" in sys.argv else as_markdown())
