"""A client's rows in the consumer's two tables, written as the official push processor writes them; for SQL stores.

`{schema}.clients` has the last mutation id of every client, `{schema}.mutations` the results that clients have not yet
seen, which are refusals only: that a mutation succeeded is told by its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference_cache.app_server.errors import StoreUnavailable
from reference_cache.app_server.requests import CleanUp, CleanUpMany
from reference_cache.app_server.stores.row_statements import RowStatements
from reference_cache.app_server.stores.sql_transaction import SqlTransaction
from reference_cache.app_server.stores.store import ClientKey

_NEXT_ID = (
    'INSERT INTO {clients} AS c ("clientGroupID", "clientID", "lastMutationID") VALUES (?, ?, 1) '
    'ON CONFLICT ("clientGroupID", "clientID") DO UPDATE SET "lastMutationID" = c."lastMutationID" + 1 '
    'RETURNING "lastMutationID"'
)
_RECORD = 'INSERT INTO {mutations} ("clientGroupID", "clientID", "mutationID", result) VALUES (?, ?, ?, ?)'
_DELETE = 'DELETE FROM {mutations} WHERE "clientGroupID" = ? AND "clientID" = ?'


class ConfirmingTransaction(SqlTransaction):
    """A transaction that confirms a mutation with what its mutator writes."""

    not_there: tuple[type[Exception], ...]
    not_there_says: str = ""
    """What the store raises for a table that does not exist, and a part of the text that tells it from others."""
    remedy: str
    """What to do when the consumer's tables do not exist."""

    def __init__(self, statements: RowStatements, client: ClientKey) -> None:
        super().__init__(statements)
        self._client = client
        dialect = statements.dialect
        self._mark = dialect.mark
        self._json = dialect.json
        self._tables = {name: dialect.table(f"{client.schema}.{name}") for name in ("clients", "mutations")}

    @property
    def tx(self) -> SqlTransaction:
        """Itself: what mutators write through."""
        return self

    async def next_mutation_id(self) -> int:
        """The client's next id, now taken."""
        (row,) = await self._system(_NEXT_ID, [self._client.group_id, self._client.client_id])
        return int(row["lastMutationID"])

    async def record_result(self, mutation_id: int, result: dict[str, Any]) -> None:
        """Add a row to the results."""
        key = [self._client.group_id, self._client.client_id, mutation_id]
        await self._system(_RECORD, [*key, self._json(result)])

    async def delete_results(self, wanted: CleanUp) -> None:
        """Delete the rows that were seen."""
        if isinstance(wanted, CleanUpMany):
            for client_id in wanted.client_ids:
                await self._system(_DELETE, [wanted.client_group_id, client_id])
        else:
            seen = [wanted.client_group_id, wanted.client_id, wanted.up_to_mutation_id]
            await self._system(f'{_DELETE} AND "mutationID" <= ?', seen)

    async def _system(self, statement: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
        try:
            return await self.execute(statement.format(**self._tables).replace("?", self._mark), parameters)
        except self.not_there as error:
            if self.not_there_says not in str(error):
                raise
            raise StoreUnavailable(f"{str(error).splitlines()[0]}; {self.remedy}") from error
