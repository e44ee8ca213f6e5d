"""What the client shows: the server's rows with its own unconfirmed mutations on top."""
