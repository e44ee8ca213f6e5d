"""Keys that lie in several partitions: found, ordered and tracked."""
