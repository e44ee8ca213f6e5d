"""Who may connect and ask: origins, tokens and their keys, the admin password."""
