"""Queries that fail, are expensive, or may not see everything."""
