"""``pgqueue top``: queues, workers, tasks and running jobs, live in the terminal."""
