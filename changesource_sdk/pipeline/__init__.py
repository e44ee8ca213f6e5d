"""The data pipeline: an adapter's snapshot and changes, encoded and appended to the change log."""
