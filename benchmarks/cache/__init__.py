"""Our cache beside the official zero-cache, on the same workload in one run."""
