"""How Spark runs an adapter: one module for each lane."""
