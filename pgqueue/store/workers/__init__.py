"""Plans of workers: their lease, their upkeep, lost workers, and what operators ask of them."""
