"""Chains, groups and workflows as enqueuers and running jobs see them."""
