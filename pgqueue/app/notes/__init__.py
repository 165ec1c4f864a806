"""What an attempt notes for later attempts, and its progress."""
