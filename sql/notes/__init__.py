"""Statements about what jobs note: steps, checkpoints, progress."""
