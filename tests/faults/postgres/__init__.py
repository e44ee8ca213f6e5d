"""Postgres databases under faults."""
