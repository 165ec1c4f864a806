"""Ctrl-C ends a command, wherever Python was when it came."""

import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pgqueue.cli.signals import no_interrupt_lost


class Held:
    """Something with a callback at its end."""


def _raise(_: object) -> None:
    raise KeyboardInterrupt


def lose_an_interrupt() -> None:
    """Be interrupted in a callback, then wait as a command does."""
    held = Held()
    seen = weakref.ref(held, _raise)
    del held
    assert seen() is None
    threading.Event().wait(30)


@contextmanager
def handled(number: signal.Signals) -> Iterator[None]:
    """Only this signal raises KeyboardInterrupt."""
    others = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = {one: signal.signal(one, signal.SIG_IGN) for one in others}
    signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_came_in_a_callback_of_the_garbage_collector_is_raised_again(
    number: signal.Signals,
) -> None:
    with handled(number), pytest.raises(KeyboardInterrupt), no_interrupt_lost():
        lose_an_interrupt()


def test_other_errors_of_such_callbacks_are_printed_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    held = Held()
    seen = weakref.ref(held, lambda _: 1 / 0)
    with no_interrupt_lost():
        del held
    assert seen() is None
    assert len(printed) == 1
