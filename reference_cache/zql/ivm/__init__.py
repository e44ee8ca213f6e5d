"""Incremental view maintenance: what travels through a pipeline, the contract of operators, sources and views."""
