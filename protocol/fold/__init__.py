"""Folding changes: what a consumer's tables, indexes and rows are after the changes it was sent."""
