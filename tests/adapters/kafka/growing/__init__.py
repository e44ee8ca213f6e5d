"""Topics that get more partitions while they are followed."""
