"""Small JSON files that another process reads: replaced by a rename, so that a reader sees the old or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import orjson

from service_kit.private_files import opener


def write_json(path: Path, value: object, *, durable: bool = False) -> None:
    """Write a temporary file in the folder of `path` and rename it; `durable` syncs the content before the rename."""
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    with open(staged, "wb", opener=opener) as file:
        file.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        if durable:
            file.flush()
            os.fsync(file.fileno())
    staged.replace(path)


def overwrite_json(path: Path, value: object) -> None:
    """Write over a file in place: not atomic, but it may succeed on a full disk, since it needs no new block."""
    content = orjson.dumps(value)
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def read_json(path: Path) -> dict[str, object] | None:
    """Return the JSON object in a file; None if the file cannot be read or has something else."""
    try:
        return parsed_json(path.read_bytes())
    except OSError:
        return None


def parsed_json(content: bytes) -> dict[str, object] | None:
    """Return the JSON object in a file's content; None if it is something else."""
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
