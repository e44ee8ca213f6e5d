"""Which connections and requests are accepted: addresses, origins, keys and certificates."""
