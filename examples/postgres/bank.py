"""The bank: its table, the query a client may ask for, and the one thing it may do.

Client and server share the query. The mutator is written twice: as the truth in the database, which may say no, and
as a guess on the rows the client has, shown at once.
"""

from typing import Any

from pydantic import BaseModel, PositiveInt

from reference_cache.app_server import ApplicationError, Mutators, NamedQueries
from reference_cache.app_server.stores.sql_transaction import SqlTransaction
from reference_cache.client import Transaction
from reference_cache.zql.query.builder import Queries, QueryBuilder
from reference_cache.zql.schema import schema, table

SETUP = b"""
    CREATE TABLE account (owner text PRIMARY KEY, balance int NOT NULL);
    INSERT INTO account VALUES ('ada', 100), ('bob', 20);
"""
BANK = schema([table("account", {"owner": "string", "balance": "number"}, primary_key="owner")], {})
queries, mutators = NamedQueries(BANK), Mutators()


class Transfer(BaseModel):
    source: str
    target: str
    amount: PositiveInt


@queries.define("accounts")
def accounts() -> QueryBuilder:
    return Queries(BANK).table("account").order_by("owner")


@mutators.define("transfer")
async def transfer(tx: SqlTransaction, args: Transfer) -> None:
    took = "UPDATE account SET balance = balance - %s WHERE owner = %s AND balance >= %s RETURNING owner"
    if not await tx.execute(took, [args.amount, args.source, args.amount]):
        raise ApplicationError(f"{args.source} does not have {args.amount}")
    await tx.execute("UPDATE account SET balance = balance + %s WHERE owner = %s", [args.amount, args.target])


def guess(tx: Transaction, args: dict[str, Any]) -> None:
    for owner, amount in ((args["source"], -args["amount"]), (args["target"], args["amount"])):
        account = tx.get("account", {"owner": owner})
        if account is not None:
            tx.update("account", {"owner": owner, "balance": account["balance"] + amount})
