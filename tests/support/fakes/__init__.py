"""Small stand-ins: scripted consumers, clients, servers and sources."""
