"""Pull style: a caller takes jobs, holds them and settles them."""
