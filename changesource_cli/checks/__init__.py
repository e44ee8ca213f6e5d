"""What `check` and `doctor` examine, and how their findings are printed."""
