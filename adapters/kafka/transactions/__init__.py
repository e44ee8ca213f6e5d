"""Transactions of the upstream, put together from records of many partitions."""
