"""What users hold in their hands: tasks, handles, the context of a running job, and the queue itself."""
