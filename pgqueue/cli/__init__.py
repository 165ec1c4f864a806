"""The ``pgqueue`` command: a door to the queue, one file per verb. Read :mod:`pgqueue.cli.main` first."""
