"""The statements about schedules and their ticks."""
