"""Checks from outside whether an endpoint, in any language, keeps the rules of `/changes/v0/stream`."""
