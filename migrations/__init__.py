"""Alembic's environment for pgqueue's schema; :mod:`pgqueue.store.schema` runs it."""
