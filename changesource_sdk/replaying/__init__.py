"""A log served once more, from a watermark of its past on, to caches that begin anew."""
