"""``pgqueue chaos``: work under faults, and a verdict; :mod:`pgqueue.chaos.run` decides the order of events."""
