"""Plans that claim limited jobs from their lanes, and that show and change limits."""
