"""The incremental engine against the official one, on the same data and the same changes."""
