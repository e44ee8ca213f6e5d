"""What queries and idle groups hold in memory."""
