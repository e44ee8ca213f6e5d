"""The Spark runner and Spark's tables under faults."""
