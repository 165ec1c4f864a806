"""What travels with a job: arguments, results, meta, errors, and how they become stored text."""
