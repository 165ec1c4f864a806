"""What looks at the queue answer, now and over time, and why a job does not run."""
