"""The client side of the conversation: query ASTs and, later, the client sync protocol."""
