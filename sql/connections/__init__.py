"""Statements about a connection's own settings, clock and schema."""
