"""The tables every consumer expects, for upstreams that do not hold them.

An app `A` with shard `N` needs `A_N.clients`, `A_N.mutations` and `A.permissions` with one row. An upstream written to
by Zero's mutators holds them and the adapter syncs them like any table; for every other upstream the endpoint puts them
into the initial sync (`endpoint.stream.system_frames`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson

from changesource_sdk.errors import ConfigurationError
from changesource_sdk.schema import Column, Table

_ANYONE = [["allow", {"type": "and", "conditions": []}]]


@dataclass(frozen=True, slots=True)
class Permissions:
    """The content of the permissions row: nothing (queries come from a query server), everything readable, or a
    document.
    """

    kind: Literal["null", "allow-all", "document"] = "null"
    document: str = ""

    @classmethod
    def parse(cls, setting: str) -> Permissions:
        """`null`, `allow-all`, or the path of a JSON file with a compiled permissions document."""
        if setting in ("", "null"):
            return cls("null")
        if setting == "allow-all":
            return cls("allow-all")
        return cls("document", _read_document(setting))

    def for_tables(self, tables: Iterable[str]) -> str | None:
        """The document as JSON text, for these tables."""
        match self.kind:
            case "null":
                return None
            case "allow-all":
                rules = {name: {"row": {"select": _ANYONE}} for name in sorted(tables)}
                return orjson.dumps({"tables": rules}).decode()
            case "document":
                return self.document


def _read_document(path: str) -> str:
    try:
        document = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            "permissions-unreadable",
            f"the permissions document cannot be read: {error}",
            where=path,
            fix="give null, allow-all, or the path of a JSON file",
        ) from error
    if not isinstance(document, dict):
        raise ConfigurationError(
            "permissions-shape", "a permissions document is a JSON object", where=path, fix="check the file's content"
        )
    return orjson.dumps(document).decode()


def system_tables(app_id: str, shard: int) -> list[Table]:
    """The three tables of an app and shard."""
    client = (Column("clientGroupID", "text", optional=False), Column("clientID", "text", optional=False))
    last_mutation = Column("lastMutationID", "int8", optional=False)
    mutation = (Column("mutationID", "int8", optional=False), Column("mutation", "json"), Column("result", "json"))
    rule = (Column("lock", "bool", optional=False), Column("permissions", "json"), Column("hash", "text"))
    schema = f"{app_id}_{shard}"
    pair = ("clientGroupID", "clientID")
    return [
        Table("clients", (*client, last_mutation, Column("userID", "text")), pair, schema),
        Table("mutations", (*client, *mutation), (*pair, "mutationID"), schema),
        Table("permissions", rule, ("lock",), app_id),
    ]
