"""What mutators of a SQL store write through: rows in the names of the schema, or any statement.

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
    """An open transaction. It ends with the mutator, which never commits or rolls back by itself: raising undoes it."""

    def __init__(self, statements: RowStatements) -> None:
        self._statements = statements

    @abstractmethod
    async def execute(self, statement: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        """Run a statement; the rows it gives, by column name."""

    async def insert(self, table: str, row: Mapping[str, Any]) -> None:
        """Add a row."""
        await self.execute(*self._statements.insert(table, row))

    async def upsert(self, table: str, row: Mapping[str, Any]) -> None:
        """Add a row, or change the one of the same key."""
        await self.execute(*self._statements.upsert(table, row))

    async def update(self, table: str, row: Mapping[str, Any]) -> None:
        """Change the columns given besides the key; a row that is not there stays away."""
        statement = self._statements.update(table, row)
        if statement is not None:
            await self.execute(*statement)

    async def delete(self, table: str, key: Mapping[str, Any]) -> None:
        """Remove the row of a key, if it is there."""
        await self.execute(*self._statements.delete(table, key))
