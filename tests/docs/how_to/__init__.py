"""What the how-to pages print is run."""
