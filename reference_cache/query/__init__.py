"""Import paths of earlier versions, kept for applications that use them; see `reference_cache.zql`."""
