"""Rows folded from a stream, for tests: the names of `protocol.fold.rows`."""

from protocol.fold.rows import FoldedTables, Key, Rows, key_of, rows_of

__all__ = ["FoldedTables", "Key", "Rows", "key_of", "rows_of"]
