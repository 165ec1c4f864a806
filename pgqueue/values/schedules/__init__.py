"""Schedules: their rules, which instants are due, and what is recorded of them."""
