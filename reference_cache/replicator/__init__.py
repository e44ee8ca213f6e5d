"""The replicator: follows a change source and keeps the replica."""
