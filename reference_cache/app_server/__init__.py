"""An application's server for Zero, in Python: named queries and mutators behind two HTTP endpoints.

    queries, mutators = NamedQueries(schema), Mutators()

    @queries.define("openByOwner")
    def open_by_owner(args: ByOwner) -> QueryBuilder: ...

    @mutators.define("issue.setTitle")
    async def set_title(tx: SqlTransaction, args: SetTitle, ctx: User) -> None: ...

    store = SqliteStore("app.db", schema)
    app.add_routes(zero_routes(queries, mutators, store, authenticate=user_of, user_id=lambda user: user.id))

`ZERO_QUERY_URL` and `ZERO_MUTATE_URL` of the official zero-cache, and of ours, then point at `/query` and `/mutate`.
"""

from reference_cache.app_server.errors import (
    ApplicationError,
    DeclarationError,
    Forbidden,
    StoreUnavailable,
    Unauthenticated,
)
from reference_cache.app_server.http import zero_routes
from reference_cache.app_server.mutators import Mutators
from reference_cache.app_server.queries import NamedQueries

__all__ = [
    "ApplicationError",
    "DeclarationError",
    "Forbidden",
    "Mutators",
    "NamedQueries",
    "StoreUnavailable",
    "Unauthenticated",
    "zero_routes",
]
