"""A queue in several databases: where each plan goes, and how shards are added."""
