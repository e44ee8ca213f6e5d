"""Running queries: built from ASTs as pipelines over shared tables, hydrated, kept current, explained."""
