"""Statements about a streaming replica."""
