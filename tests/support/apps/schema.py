"""What the scenario's application can speak about: the tables of a small issue tracker, in its clients' names."""

from __future__ import annotations

from reference_cache.zql.schema import Schema

_TEXT = {"type": "string"}
_KEY = ["id"]

TRACKER = Schema.from_json(
    {
        "tables": {
            "users": {"columns": {"id": _TEXT, "name": _TEXT}, "primaryKey": _KEY},
            "issues": {
                "columns": {
                    "id": _TEXT,
                    "title": _TEXT,
                    "open": {"type": "boolean"},
                    "owner": {"type": "string", "serverName": "owner_id"},
                    "modified": {"type": "number"},
                },
                "primaryKey": _KEY,
            },
            "labels": {"columns": {"id": _TEXT, "name": _TEXT}, "primaryKey": _KEY},
            "issue_labels": {
                "columns": {"issue_id": _TEXT, "label_id": _TEXT},
                "primaryKey": ["issue_id", "label_id"],
            },
        },
        "relationships": {
            "labels": {
                "used": [{"sourceField": _KEY, "destField": ["label_id"], "destSchema": "issue_labels"}],
            },
        },
    }
)
