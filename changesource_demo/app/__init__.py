"""The application server of the demo: named queries and mutators of the issue tracker, over its SQLite database."""
