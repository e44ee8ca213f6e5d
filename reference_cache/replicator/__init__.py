"""The replicator: follows a change source and is the only writer of the replica."""
