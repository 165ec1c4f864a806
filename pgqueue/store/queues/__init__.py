"""Plans of queues: pause, close, settings, bounds, and how they stand."""
