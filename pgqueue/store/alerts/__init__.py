"""Plans of alerts: how conditions are read, and how a task is told."""
