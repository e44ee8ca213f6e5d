"""The query language: its schema, values, orderings and predicates; in the folders, how queries run."""
