"""Where a measurement of ours runs: on the database of a DSN, or on a PostgreSQL that is started for it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pgqueue.bench.stage import BenchStage
from pgqueue.cli.bench import open_stage
from pgqueue.cli.verbs import CommandOptions
from pgqueue.embedded import embedded_server
from pgqueue.store.connections.dsn import dsn_in_environment


@contextmanager
def ground(dsn: str | None) -> Iterator[BenchStage]:
    """The bench's stage for the length of the block; nothing is left behind.

    Args:
        dsn: the database; None: that of the environment, or an embedded server.
    """
    with ExitStack() as opened:
        dsn = dsn or dsn_in_environment() or opened.enter_context(embedded_server())
        yield opened.enter_context(open_stage(CommandOptions(dsn=dsn)))
