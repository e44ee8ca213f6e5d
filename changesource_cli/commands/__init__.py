"""One module for each subcommand, of the same name."""
