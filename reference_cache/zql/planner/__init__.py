"""The planner: which EXISTS conditions to evaluate child first, by what reading a table costs."""
