"""Any Postgres database behind Zero, through logical replication."""
