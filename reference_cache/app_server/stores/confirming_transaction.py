"""SQL transactions that confirm a mutation in the cache's two tables, as the official push processor does.

`{schema}.clients` holds the last mutation id of every client. `{schema}.mutations` holds the results that clients have
not acknowledged; these are errors only, because the last mutation id already says that a mutation succeeded.
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
    """A transaction that contains a mutation's confirmation and its mutator's writes."""

    missing_table_errors: tuple[type[Exception], ...]
    missing_table_text: str = ""
    """What the store raises for a table that does not exist, and the part of its message that identifies it."""
    missing_table_fix: str
    """What to do when the cache's tables do not exist."""

    def __init__(self, statements: RowStatements, client: ClientKey) -> None:
        super().__init__(statements)
        self._client = client
        dialect = statements.dialect
        self._mark = dialect.mark
        self._json = dialect.json
        self._tables = {name: dialect.table(f"{client.schema}.{name}") for name in ("clients", "mutations")}

    @property
    def tx(self) -> SqlTransaction:
        return self

    async def next_mutation_id(self) -> int:
        (row,) = await self._system(_NEXT_ID, [self._client.group_id, self._client.client_id])
        return int(row["lastMutationID"])

    async def record_result(self, mutation_id: int, result: dict[str, Any]) -> None:
        key = [self._client.group_id, self._client.client_id, mutation_id]
        await self._system(_RECORD, [*key, self._json(result)])

    async def delete_results(self, clean_up: CleanUp) -> None:
        if isinstance(clean_up, CleanUpMany):
            for client_id in clean_up.client_ids:
                await self._system(_DELETE, [clean_up.client_group_id, client_id])
        else:
            up_to = [clean_up.client_group_id, clean_up.client_id, clean_up.up_to_mutation_id]
            await self._system(f'{_DELETE} AND "mutationID" <= ?', up_to)

    async def _system(self, statement: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
        try:
            return await self.execute(statement.format(**self._tables).replace("?", self._mark), parameters)
        except self.missing_table_errors as error:
            if self.missing_table_text not in str(error):
                raise
            raise StoreUnavailable(f"{str(error).splitlines()[0]}; {self.missing_table_fix}") from error
