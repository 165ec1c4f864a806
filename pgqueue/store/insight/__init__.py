"""Plans by which people look at the queue, now and over time."""
