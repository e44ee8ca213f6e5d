"""The Postgres adapter beside the official server's own Postgres mode, on one database."""
