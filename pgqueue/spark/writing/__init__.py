"""Enqueues the rows of a DataFrame."""
