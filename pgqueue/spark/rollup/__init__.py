"""Sums up a lake's days."""
