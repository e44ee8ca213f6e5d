"""How fast, how lean and how prompt the endpoint is, beside the official zero-cache on the same machine and data."""
