"""The Spark lanes: the same pipeline steps as the inline runner, carried out by Spark tasks."""
