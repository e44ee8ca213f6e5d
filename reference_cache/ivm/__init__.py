"""Incremental view maintenance: operators that fetch once and then push only what changed."""
