"""Signals: how programs send them, and how tasks wait for them."""
