"""Rows, changes and schemas of an adapter, checked and encoded as they travel."""
