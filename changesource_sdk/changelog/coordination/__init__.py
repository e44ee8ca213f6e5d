"""How the processes of one log communicate: the contract of a backend, and what its notes mean."""
