"""``pgqueue chaos``: work under faults, and a verdict; :mod:`pgqueue.cli.chaos.command` decides the order of events."""
