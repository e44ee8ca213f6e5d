"""Running an endpoint and a pipeline in the foreground."""
