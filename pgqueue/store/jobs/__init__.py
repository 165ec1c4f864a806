"""Plans that add jobs, claim them, record how they ended, and show them."""
