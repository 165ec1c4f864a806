"""The verbs of ``pgqueue pipeline``, each in a file of its own. What they do is :mod:`pgqueue.spark`'s business."""

import click

from pgqueue.cli.verbs import LazyGroup, Verb

VERBS = {
    "export": Verb("pgqueue.cli.pipeline.export:export", "Write closed days of ended jobs to the lake."),
}


@click.group(cls=LazyGroup, verbs=VERBS)
def pipeline() -> None:
    """Take ended jobs out of the database into a lake of Parquet files, and report on them.

    Needs the extra "spark", and Java 17 or later.
    """
