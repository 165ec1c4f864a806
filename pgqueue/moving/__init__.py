"""Stand-ins for the API of other queues, so that call sites written for them work on pgqueue.

Each module has the names of one system, uses only ``PgQueue`` and ``Task``, and imports nothing of that system. An option
keeps its old meaning; an option that cannot be honoured raises an error that names it.
"""
