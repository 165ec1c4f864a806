"""Batch tasks: what they see of their jobs, and how they are declared."""
