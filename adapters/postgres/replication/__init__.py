"""Logical replication: the slot, the session, and what the stream says."""
