"""Lakehouse tables: how soon a merge is at a consumer, what a difference costs, how a large snapshot is taken."""
