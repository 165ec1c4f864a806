"""Statements about limits: the lanes in which limited jobs wait, and what claims from them have to know."""
