"""The log of a cluster, in Postgres."""
