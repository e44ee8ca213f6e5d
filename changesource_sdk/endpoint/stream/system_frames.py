"""The frames of the tables every consumer expects, for an initial sync of an upstream that does not hold them. Pure."""

from __future__ import annotations

import hashlib

from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.pipeline.encoding.schema_frames import snapshot_schema
from changesource_sdk.schema import JsonText
from changesource_sdk.system_tables import Permissions, system_tables


def system_frames(app_id: str, shard: int, schema: ConsumerSchema, permissions: Permissions) -> list[bytes]:
    """The frames that give an app and shard what the snapshot's schema lacks; they belong right after `begin`."""
    missing = [table for table in system_tables(app_id, shard) if table.full_name not in schema.tables]
    before, after = snapshot_schema(missing, schema)
    rows = [TableEncoder(t).insert(permissions_row(schema, permissions)) for t in missing if t.name == "permissions"]
    return before + rows + after


def permissions_row(schema: ConsumerSchema, permissions: Permissions) -> dict[str, object]:
    """The one row of the permissions table; its hash changes when the document does."""
    document = permissions.for_tables(schema.tables)
    if document is None:
        return {"lock": True, "permissions": None, "hash": None}
    digest = hashlib.md5(document.encode(), usedforsecurity=False).hexdigest()
    return {"lock": True, "permissions": JsonText(document), "hash": digest}
