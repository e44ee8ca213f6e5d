"""What the explanations show is run."""
