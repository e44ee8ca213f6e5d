"""The queries and mutators of the demo's clients.

`SCHEMA` is the part of the upstream's schema that clients see. Empty titles are refused, so that the page can show how
an optimistic edit is taken back.
"""

from __future__ import annotations

import time
from typing import Literal

from pydantic import BaseModel

from reference_cache.app_server import ApplicationError, Mutators, NamedQueries
from reference_cache.app_server.stores.sql_transaction import SqlTransaction
from reference_cache.zql.query.builder import Queries, QueryBuilder
from reference_cache.zql.schema import hop, schema, table

_NUMBER, _TEXT = "number", "string"
SCHEMA = schema(
    [
        table(
            "issue",
            {"id": _NUMBER, "title": _TEXT, "status": _TEXT, "owner": _TEXT, "pinned": "boolean", "modified": _NUMBER},
        ),
        table("comment", {"id": _NUMBER, "issue_id": _NUMBER, "author": _TEXT, "body": "string?", "modified": _NUMBER}),
    ],
    {"issue": {"comments": hop("id", "comment", "issue_id")}, "comment": {"issue": hop("issue_id", "issue", "id")}},
)
queries, mutators = NamedQueries(SCHEMA), Mutators()


class SetTitle(BaseModel):
    """A new title for an issue."""

    id: int
    title: str


class SetStatus(BaseModel):
    """A new status for an issue."""

    id: int
    status: Literal["open", "in progress", "done"]


@queries.define("pinnedIssues")
def pinned_issues() -> QueryBuilder:
    """The issues both clients of the page edit."""
    return Queries(SCHEMA).table("issue").where("pinned", True).order_by("id", "asc")


@mutators.define("issue.setTitle")
async def set_title(tx: SqlTransaction, args: SetTitle) -> None:
    """Rename an issue; blank titles are refused."""
    if not args.title.strip():
        raise ApplicationError("A title cannot be empty")
    await tx.update("issue", {"id": args.id, "title": args.title, "modified": _now()})


@mutators.define("issue.setStatus")
async def set_status(tx: SqlTransaction, args: SetStatus) -> None:
    """Set the status of an issue."""
    await tx.update("issue", {"id": args.id, "status": args.status, "modified": _now()})


def _now() -> float:
    return time.time() * 1000
