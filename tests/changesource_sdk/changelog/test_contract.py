"""What the author of a backend has to write: at most 25 methods, all of them on the page, the same in every backend."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import changesource_sdk.changelog
from changesource_sdk.changelog.coordination.contract import Coordination
from changesource_sdk.changelog.log import Log
from changesource_sdk.changelog.postgres.coordination import PostgresCoordination
from changesource_sdk.changelog.postgres.log import PostgresLog
from changesource_sdk.changelog.spool.directory import DirectorySpool
from changesource_sdk.changelog.spool.remote import RemoteSpool
from changesource_sdk.changelog.spool.spool import Spool
from changesource_sdk.changelog.sqlite.coordination import SqliteCoordination
from changesource_sdk.changelog.sqlite.log import SqliteLog

FOLDER = Path(changesource_sdk.changelog.__file__).parent
BACKENDS: dict[type, list[type]] = {
    Log: [SqliteLog, PostgresLog],
    Coordination: [SqliteCoordination, PostgresCoordination],
    Spool: [DirectorySpool, RemoteSpool],
}


def members(protocol: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(protocol) if not name.startswith("_")]


def test_a_backend_is_at_most_25_methods() -> None:
    assert sum(len(members(protocol)) for protocol in BACKENDS) <= 25


def test_every_method_is_on_the_page() -> None:
    page = (FOLDER / "README.md").read_text()
    for protocol in BACKENDS:
        table = page.split(f"| `{protocol.__name__}` ({len(members(protocol))})")[1].split("\n\n")[0]
        assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == members(protocol)


def test_every_backend_has_every_method() -> None:
    for protocol, backends in BACKENDS.items():
        for backend in backends:
            assert set(members(protocol)) <= set(dir(backend)), backend


def test_backends_have_the_same_file_names() -> None:
    assert {path.name for path in (FOLDER / "sqlite").glob("*.py")} == {
        path.name for path in (FOLDER / "postgres").glob("*.py")
    }
