"""The socket that clients speak to, and the pages beside it."""
