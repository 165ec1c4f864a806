"""The core: jobs, history, dead jobs, workers, queues, and the SQL function ``enqueue``."""

from alembic import context, op

from pgqueue.store.schema import run_script, statements

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Install it."""
    _run("0001_core.up")


def downgrade() -> None:
    """Take it away, with every job in it."""
    _run("0001_core.down")


def _run(name: str) -> None:
    script = statements(name, context.config.attributes["schema"])
    if context.is_offline_mode():
        context.get_context().impl.static_output(script)
    else:
        run_script(op.get_bind(), script)
