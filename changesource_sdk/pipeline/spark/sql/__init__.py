"""Spark SQL in mappings: changes and rows as data frames, evaluated and read back."""
