"""``queue.insight``: the queue as people look at it."""
