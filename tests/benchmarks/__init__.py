"""Benchmarks measure what they say they measure."""
