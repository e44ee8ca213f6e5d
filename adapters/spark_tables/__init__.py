"""Tables that Spark can read behind Zero: Delta, Iceberg, files, JDBC, and any Spark SQL query."""

from adapters.spark_tables.adapter import SparkTablesAdapter

__all__ = ["SparkTablesAdapter"]
