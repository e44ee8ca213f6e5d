"""Connections to the brokers: options, errors, consumers, committed offsets."""
