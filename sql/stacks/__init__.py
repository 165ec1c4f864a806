"""Statements about the stacks of running jobs."""
