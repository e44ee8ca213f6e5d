"""Parts of query pipelines that only tests and benchmarks use."""
