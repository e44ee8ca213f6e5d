"""Rows as consumers get them: columns, values, keys, and the hash a row is known by."""
