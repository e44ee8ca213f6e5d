"""Writing a replica: the initial sync, and live transactions after it."""
