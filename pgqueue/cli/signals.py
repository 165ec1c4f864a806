"""Signals that end a command which must clean up."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def end_like_an_interrupt(*numbers: signal.Signals) -> Iterator[None]:
    """Let these signals end the block as Ctrl-C does, so that everything is cleaned up.

    Args:
        numbers: the signals; one that is ignored, as SIGHUP is under nohup, stays ignored.
    """
    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, signal.default_int_handler) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
