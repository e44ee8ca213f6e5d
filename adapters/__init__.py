"""One folder per datastore; each says what to read and how to resume, and nothing else."""
