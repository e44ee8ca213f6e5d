"""Rules that a user sets, as pure values: which web pages may connect, when to compact."""
