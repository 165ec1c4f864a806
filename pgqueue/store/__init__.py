"""What to ask PostgreSQL: plans over statements. The only floor that knows SQL."""
