"""Statements about attempts that ended with their worker."""
