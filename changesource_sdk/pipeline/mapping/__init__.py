"""Table mappings: declared, compiled, and applied to tables, rows and changes."""
