"""Plans of queues: pause, drain, settings, bounds, and how they stand."""
