"""Everything at once: other processes write, the reader dies, and the consumer ends up with the database."""
