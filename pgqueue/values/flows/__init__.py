"""Chains, groups and workflows as values, and the rules by which they go on."""
