"""Signals that end a command which must clean up."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGTERM, signal.SIGINT)
"""The signals that end a server of pages or metrics."""
AGAIN_AFTER = 0.05
"""Seconds until an interrupt that was lost is raised again."""


@contextmanager
def no_interrupt_lost() -> Iterator[None]:
    """Raise an interrupt again that Python could only print.

    A signal's handler runs in whatever Python code the main thread is about to run. If that is a callback of the garbage
    collector, Python prints KeyboardInterrupt as ``Exception ignored``, and the command would go on.
    """
    before = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            threading.Timer(
                AGAIN_AFTER, _interrupt
            ).start()  # from another thread: here it would be lost, too
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _interrupt() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.default_int_handler:
            signal.pthread_kill(threading.main_thread().ident or 0, number)  # it ends the wait of that thread
            return


@contextmanager
def end_like_an_interrupt(*numbers: signal.Signals) -> Iterator[None]:
    """Let these signals end the block as Ctrl-C does, so that everything is cleaned up.

    Args:
        numbers: the signals. One that is ignored stays ignored, as SIGHUP is under nohup; SIGINT does not: a shell has its
            background jobs ignore it.
    """
    handled = [
        number
        for number in numbers
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, signal.default_int_handler) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
