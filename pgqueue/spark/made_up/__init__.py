"""Makes up a history of any size."""
