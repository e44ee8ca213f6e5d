"""Confirmations of mutations for stores that cannot hold them: a file beside the store whose rows join the stream."""
