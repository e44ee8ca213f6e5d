"""The change log: the durable, ordered record of transactions, and what its processes share."""
