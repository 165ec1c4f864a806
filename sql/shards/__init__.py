"""Statements about the shards of a queue."""
