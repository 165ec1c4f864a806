"""What a job is, what an enqueue may ask for, and what becomes of a job after an attempt."""
