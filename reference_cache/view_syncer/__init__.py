"""The view syncer: what each client group has seen, kept in step with the replica."""
