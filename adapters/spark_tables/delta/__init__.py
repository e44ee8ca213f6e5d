"""Delta tables, followed version by version through their change feed."""
