"""The Python client on both caches."""
