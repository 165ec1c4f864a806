"""Plans of operations on many jobs."""
