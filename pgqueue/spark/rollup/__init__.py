"""Sums a lake's days up."""
