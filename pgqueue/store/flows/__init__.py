"""Plans of chains, groups and workflows: add, follow, look, retry, cancel, grow."""
