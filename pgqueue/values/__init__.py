"""Frozen values and pure rules. No module here does I/O, reads a clock or uses a driver."""
