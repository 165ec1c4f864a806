"""Stand-ins for people who come from another queue: their call sites, on pgqueue.

Each module speaks the words of one system, is built on ``PgQueue`` and ``Task`` alone, and imports nothing of that
system. What an old option meant is what it means here; an option that cannot be honoured is refused by name.
"""
