"""Any Postgres database behind Zero, through logical replication."""

from adapters.postgres.adapter import PostgresAdapter

__all__ = ["PostgresAdapter"]
