"""Applications that tests put behind a cache, and the clients that use them."""
