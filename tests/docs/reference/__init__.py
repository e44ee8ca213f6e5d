"""What the reference pages say is what the code does."""
