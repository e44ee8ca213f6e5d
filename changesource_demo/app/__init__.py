"""The application behind the demo's page: an issue tracker's named queries and mutators, over its SQLite store."""
