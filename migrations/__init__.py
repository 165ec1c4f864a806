"""Alembic's environment for pgqueue's schema; :mod:`pgqueue.store.schema.schema` runs it."""
