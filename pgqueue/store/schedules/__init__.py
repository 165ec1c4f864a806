"""Plans of schedules and their ticks."""
