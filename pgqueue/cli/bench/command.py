"""The verbs of ``pgqueue bench``, each in its own file.

The schema is in :mod:`pgqueue.cli.bench.place`. The two contenders, pgqueue and a bare client, are in
:mod:`pgqueue.cli.bench.peer` and :mod:`pgqueue.cli.bench.floor`, and run as processes
(:mod:`pgqueue.cli.bench.processes`). :mod:`pgqueue.cli.bench.loads` decides what is measured.
"""

import click

from pgqueue.cli.verbs import LazyGroup, Verb

VERBS = {
    "clean": Verb("pgqueue.cli.bench.clean:clean", "Drop the bench's schema."),
    "grow": Verb("pgqueue.cli.bench.grow:grow", "Draw how cost grows with backlog, concurrency and payload."),
    "run": Verb("pgqueue.cli.bench.run:run", "Measure this database under every load, beside a bare client."),
    "soak": Verb("pgqueue.cli.bench.soak:soak", "Enqueue and work at a steady rate, and watch what grows."),
}


@click.group(cls=LazyGroup, verbs=VERBS)
def bench() -> None:
    """Measure your own database, in a schema of the bench's own, pgqueue_bench.

    The schema is made and dropped. One that the bench did not make is refused.
    """
