"""Statements about operations on many jobs: which match a filter, and what is done to them."""
