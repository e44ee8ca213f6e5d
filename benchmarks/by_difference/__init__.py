"""Benchmarks of upstreams without a log."""
