"""Seeds: replica files for a cache to start from, built from the spool and the log without asking the upstream."""
