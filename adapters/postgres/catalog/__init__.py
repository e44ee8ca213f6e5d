"""What is published: read from the database, selected for syncing, and written as a document."""
