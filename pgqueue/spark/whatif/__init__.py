"""Recorded jobs of a lake under other settings: more workers, limits, other times. Needs no Spark session."""
