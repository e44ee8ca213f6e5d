"""The endpoint serves the change log and its snapshots to consumers over `/changes/v0/stream`."""
