"""Real programs that tests start and talk to."""
