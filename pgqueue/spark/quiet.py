"""Keeps the noise of Spark's start off the terminal.

Java and Spark write some lines to stderr that no setting turns off, and that tell a user of the pipeline nothing. Spark's
Java process inherits our stderr; so it is given a pipe for it, and a thread passes on every line but these. Whatever else
is written there, errors above all, is passed on as it is.
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
"""How the lines begin that are not passed on."""
STDERR = 2


@contextmanager
def without_noise() -> Iterator[None]:
    """Have a process that is started in this block write to our stderr without noise, for as long as it lives."""
    try:
        ours = os.dup(STDERR)
    except OSError:  # a process without stderr hears no noise
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
    """Pass on what is read, line by line, until the last process that may write has ended."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(target, "wb", buffering=0) as out:
        for line in lines:
            if not line.startswith(NOISE):
                out.write(line)
