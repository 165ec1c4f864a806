"""Run revisions on the connection that :mod:`pgqueue.store.schema.schema` hands over, or print them."""

from alembic import context
from sqlalchemy import text

schema = context.config.attributes["schema"]
connection = context.config.attributes["connection"]

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", version_table_schema=schema, literal_binds=True)
    with context.begin_transaction():
        context.execute(f"create schema if not exists {schema}")
        context.run_migrations()
else:
    # Two who migrate at once: the second waits here, then finds nothing left to do.
    connection.execute(text("select pg_advisory_xact_lock(hashtext(:name))"), {"name": f"{schema}.migrate"})
    # "if not exists" asks for the right to make schemas even if there is nothing to make
    if not connection.scalar(text("select to_regnamespace(:schema) is not null"), {"schema": schema}):
        connection.execute(text(f"create schema {schema}"))
    context.configure(connection=connection, version_table_schema=schema, transactional_ddl=True)
    context.run_migrations()
