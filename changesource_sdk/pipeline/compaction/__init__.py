"""Compaction: a new snapshot from an older one and the log after it."""
