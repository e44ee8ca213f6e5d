"""A client of Zero in Python: live queries, optimistic mutations, an offline queue; for the official cache and ours."""

from reference_cache.client.client import Client
from reference_cache.client.connection import ConnectionState
from reference_cache.client.errors import (
    ClientError,
    Disconnected,
    MutationLost,
    MutationRefused,
    MutationUnsettled,
    QueryRefused,
)
from reference_cache.client.local.transaction import Transaction
from reference_cache.client.mutations import Mutation
from reference_cache.client.queries import NamedQuery, named_query
from reference_cache.client.sqlite_store import SqliteLocalStore
from reference_cache.client.store import LocalStore, MemoryLocalStore
from reference_cache.client.views import LiveView

MemoryStore = MemoryLocalStore
"""The name in earlier versions."""

__all__ = [
    "Client",
    "ClientError",
    "ConnectionState",
    "Disconnected",
    "LiveView",
    "LocalStore",
    "MemoryLocalStore",
    "MemoryStore",
    "Mutation",
    "MutationLost",
    "MutationRefused",
    "MutationUnsettled",
    "NamedQuery",
    "QueryRefused",
    "SqliteLocalStore",
    "Transaction",
    "named_query",
]
