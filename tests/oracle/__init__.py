"""Random queries and changes, checked against evaluators that share no code with the engine."""
