"""Who is told what happens to jobs in this process: observers, and an app's hooks."""
