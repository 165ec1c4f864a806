"""Workers: their lease, their load, their health, and the jobs that end with them."""
