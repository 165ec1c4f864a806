"""Statements about queues: their names, their settings, and what operators do with them."""
