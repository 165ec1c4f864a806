"""The ``pgqueue`` command: one file per verb. Read :mod:`pgqueue.cli.main` first."""
