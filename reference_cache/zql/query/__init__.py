"""Queries as values: written in Python, checked, named, simplified and identified."""
