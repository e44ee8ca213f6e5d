"""Authentication and authorisation of clients: origins, tokens and their keys, the admin password."""
