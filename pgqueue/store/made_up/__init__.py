"""Plans that make up history, and that roll it up in plain SQL for comparison."""
