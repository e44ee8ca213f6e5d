"""From a ZQL AST to a running pipeline: predicates, orderings, planner, assembly."""
