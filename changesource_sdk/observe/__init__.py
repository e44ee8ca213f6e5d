"""Logs, metrics, warnings, and how far each stage is."""
