"""Statements about what operators did."""
