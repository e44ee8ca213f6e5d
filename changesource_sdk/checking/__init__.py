"""Judging from outside: whether an endpoint, in whatever language, keeps the rules of `/changes/v0/stream`."""
