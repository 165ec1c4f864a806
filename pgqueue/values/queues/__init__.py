"""Queues: their settings, how workers divide their slots among them, and how they stand."""
