"""Faults in which the primary ends for good and a replica takes its place.

With a synchronous replica no commit that a program was told of is lost. Where commits wait for no replica, the last ones are
lost with the primary: the run cuts the replica off for a moment so that it happens, and counts what was lost.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from pgqueue.cli.chaos.stage import Stage


@contextmanager
def failover(stage: Stage) -> Iterator[None]:
    """Lose the primary, and nothing else; afterwards a new replica follows the new primary."""
    with stage.crashing():
        stage.own.fail_over()
    yield


@contextmanager
def failover_async(stage: Stage) -> Iterator[None]:
    """Lose the primary, and what it has committed since its replica was cut off."""
    own = stage.own
    began = time.monotonic()
    with stage.crashing():
        own.let_commits_go()
        own.cut_off_replica()
        try:
            yield
        finally:
            own.fail_over()
            stage.forgotten.append((began, time.monotonic()))


def follow(stage: Stage) -> None:
    """Have the former primary follow the new one, from a fresh copy, and each commit wait for it."""
    stage.own.add_replica()
