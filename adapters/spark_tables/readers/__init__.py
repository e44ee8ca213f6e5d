"""Reading a table's rows as they are now: files, JDBC, Iceberg, a query."""
