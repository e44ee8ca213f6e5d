"""One consumer's stream: what it is sent, in which order, and what it acknowledged."""
