"""The demo: the whole flow on one machine, watched on a page or on the terminal."""
