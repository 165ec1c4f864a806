"""Alerts: their conditions, and when a task is told of one."""
