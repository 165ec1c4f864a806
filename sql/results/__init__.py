"""Statements for callers that wait for the end of jobs."""
