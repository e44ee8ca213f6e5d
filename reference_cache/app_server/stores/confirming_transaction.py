"""SQL transactions that confirm a mutation in the cache's two tables, as the official push processor does.

`{schema}.clients` holds the last mutation id of every client. `{schema}.mutations` holds the results that clients have
not acknowledged; these are errors only, because the last mutation id already says that a mutation succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference_cache.app_server.errors import StoreUnavailable
from reference_cache.app_server.requests import CleanUp, CleanUpMany
from reference_cache.app_server.stores.dialect import COUNTER, COUNTER_KEY
from reference_cache.app_server.stores.row_statements import RowStatements
from reference_cache.app_server.stores.sql_transaction import SqlTransaction
from reference_cache.app_server.stores.store import ClientKey

MUTATION_ID = "mutationID"


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
        self._dialect = statements.dialect
        self._clients = self._dialect.table(f"{client.schema}.clients")
        self._mutations = self._dialect.table(f"{client.schema}.mutations")

    @property
    def tx(self) -> SqlTransaction:
        return self

    async def next_mutation_id(self) -> int:
        rows: list[dict[str, Any]] = []
        for statement in self._dialect.next_id(self._clients):
            rows = await self._system(statement, [self._client.group_id, self._client.client_id])
        return int(rows[0][COUNTER])

    async def record_result(self, mutation_id: int, result: dict[str, Any]) -> None:
        columns = ", ".join(map(self._dialect.quote, (*COUNTER_KEY, MUTATION_ID, "result")))
        key = [self._client.group_id, self._client.client_id, mutation_id]
        statement = f"INSERT INTO {self._mutations} ({columns}) VALUES ({self._dialect.marks(4)})"
        await self._system(statement, [*key, self._dialect.json(result)])

    async def delete_results(self, clean_up: CleanUp) -> None:
        delete = f"DELETE FROM {self._mutations} WHERE {self._dialect.where_client()}"
        if isinstance(clean_up, CleanUpMany):
            for client_id in clean_up.client_ids:
                await self._system(delete, [clean_up.client_group_id, client_id])
        else:
            up_to = [clean_up.client_group_id, clean_up.client_id, clean_up.up_to_mutation_id]
            condition = f"{self._dialect.quote(MUTATION_ID)} <= {self._dialect.mark}"
            await self._system(f"{delete} AND {condition}", up_to)

    async def _system(self, statement: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
        try:
            return await self.execute(statement, parameters)
        except self.missing_table_errors as error:
            if self.missing_table_text not in str(error):
                raise
            raise StoreUnavailable(f"{str(error).splitlines()[0]}; {self.missing_table_fix}") from error
