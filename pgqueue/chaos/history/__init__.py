"""What a log written outside of the queue says of jobs, and whether each promise held. Pure rules."""
