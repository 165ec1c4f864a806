"""``pgqueue pipeline demo`` and ``generate``: made-up history, the app of the real jobs, and whether the lake holds all of them."""
