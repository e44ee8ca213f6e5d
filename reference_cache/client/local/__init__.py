"""The client's rows: the server's, with the unconfirmed mutations on top."""
