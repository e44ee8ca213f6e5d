"""The cache, the application behind it and their clients: killed, flooded, stalled."""
