"""The shop: orders, and what becomes of them."""
