"""The SQL of pgqueue: one statement per file, named like the plan that sends it.

The files are plain SQL with psycopg's named placeholders. They name the schema ``pgqueue``;
the catalogue in :mod:`pgqueue.store.catalogue` puts the configured schema in its place.
"""
