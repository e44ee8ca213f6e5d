"""Any Postgres database behind Zero, by logical replication."""
