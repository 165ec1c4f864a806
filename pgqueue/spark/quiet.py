"""Filters the start messages of Spark and Java out of stderr.

Java and Spark write some lines to stderr that no setting turns off and that are of no use to a user of the pipeline.
Spark's Java process inherits our stderr, so it is given a pipe in its place. A thread copies every line from the pipe to
the real stderr, except these. All other lines, errors above all, are copied unchanged.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NOISE = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"WARNING: Using incubator module(s): jdk.incubator.vector",
    b"Using Spark's default log4j profile: ",
    b'Setting default log level to "',
    b'Setting Spark log level to "',
    b"To adjust logging level use sc.setLogLevel(",
    b"Warning: Java versions > Java 11 can only operate in restricted mode",
)
"""The beginnings of lines that are dropped."""
STDERR = 2


@contextmanager
def without_noise() -> Iterator[None]:
    """Filter the stderr of a process that is started in this block, until that process ends."""
    try:
        ours = os.dup(STDERR)
    except OSError:  # a process without stderr has nothing to filter
        yield
        return
    reading, writing = os.pipe()
    os.dup2(writing, STDERR)
    os.close(writing)
    threading.Thread(
        target=_pass_on, args=(reading, os.dup(ours)), name="pgqueue-spark-stderr", daemon=True
    ).start()
    try:
        yield
    finally:
        os.dup2(ours, STDERR)
        os.close(ours)


def _pass_on(reading: int, target: int) -> None:
    """Copy line by line, until the last process that may write to the pipe has ended."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(target, "wb", buffering=0) as out:
        for line in lines:
            if not line.startswith(NOISE):
                out.write(line)
