"""Confirmations of mutations for upstreams that cannot store them: a separate file whose rows join the stream."""
