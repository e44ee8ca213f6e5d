"""Several sources in one log: each is read, followed and retried alone."""
