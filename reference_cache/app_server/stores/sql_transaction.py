"""The `tx` of mutators over a SQL store: rows in the names of the schema, or any statement.

    await tx.update("issue", {"id": args.id, "title": args.title})
    await tx.execute("UPDATE issues SET votes = votes + 1 WHERE id = ?", [args.id])

Statements are the store's own SQL, with its placeholders (`?` in SQLite, `%s` in Postgres).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from reference_cache.app_server.stores.row_statements import RowStatements

Parameters = Sequence[Any] | Mapping[str, Any]


class SqlTransaction(ABC):
    """An open transaction. The store commits it when the mutator returns, and rolls it back if the mutator raises."""

    def __init__(self, statements: RowStatements) -> None:
        self._statements = statements

    @abstractmethod
    async def execute(self, statement: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        """Run a statement; returns its rows as dicts by column name."""

    async def insert(self, table: str, row: Mapping[str, Any]) -> None:
        """Add a row; fails if the key exists."""
        await self.execute(*self._statements.insert(table, row))

    async def upsert(self, table: str, row: Mapping[str, Any]) -> None:
        """Add a row, or set these columns of the existing one."""
        await self.execute(*self._statements.upsert(table, row))

    async def update(self, table: str, row: Mapping[str, Any]) -> None:
        """Set these columns of the row with this key; does nothing if there is no such row."""
        statement = self._statements.update(table, row)
        if statement is not None:
            await self.execute(*statement)

    async def delete(self, table: str, key: Mapping[str, Any]) -> None:
        """Delete the row with this key, if it exists."""
        await self.execute(*self._statements.delete(table, key))
