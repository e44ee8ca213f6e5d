"""What is shipped next to the packages: a dashboard and alert rules, made here and tried with the real programs."""
