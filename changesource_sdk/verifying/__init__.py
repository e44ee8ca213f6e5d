"""Whether two stages hold the same rows: read each at one watermark, compare digests, name what differs by its key."""
