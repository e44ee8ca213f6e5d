"""Where mutators write, together with the confirmations of their mutations."""
