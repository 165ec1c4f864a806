"""A shop whose work is done by Celery: 15 tasks, a chain, a chord, and a schedule."""
