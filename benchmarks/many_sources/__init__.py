"""Four sources in one log, compared with one."""
