"""Statements that add, claim, end and show jobs."""
