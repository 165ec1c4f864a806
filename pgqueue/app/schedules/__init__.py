"""Schedules as an app declares them, and as operators see them."""
