"""Celery's package of this name, of which call sites use the logger of a task."""
