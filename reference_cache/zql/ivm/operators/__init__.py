"""The operators of a query pipeline: each fetches once and then pushes only what changed."""
