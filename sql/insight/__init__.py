"""Statements by which people look at the queue as a whole."""
