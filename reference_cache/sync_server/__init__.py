"""The server of the clients' WebSockets and of the HTTP pages."""
