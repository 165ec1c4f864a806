"""Statements that keep and drop ended jobs."""
