"""A history that is made up, of any size."""
