"""Taking a snapshot, and resuming one that was interrupted."""
