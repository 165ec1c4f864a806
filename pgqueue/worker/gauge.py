"""What a worker measures of its load: slots, event loop, memory, CPU time. What follows is decided in ``values/workers/load.py``."""

import os
import time
from collections import deque

from pgqueue.values.workers.load import GROW_AGAIN_AFTER, WorkerLoad
from pgqueue.worker.claims import Claims
from pgqueue.worker.memory import memory_in_use
from pgqueue.worker.signals import Signals
from pgqueue.worker.watch import LoopWatch

LOOKS = 10
"""Slots count as unused when they were free at this many looks."""


class Gauge:
    """Measures the load of one worker. Called in the worker's event loop, about once a second."""

    def __init__(self, claims: Claims, signals: Signals, watch: LoopWatch) -> None:
        self._claims = claims
        self._signals = signals
        self._watch = watch
        self._taken: deque[int] = deque(maxlen=LOOKS)
        self._cores = _cores()
        self._clocks = time.monotonic(), time.thread_time(), time.process_time()
        self._strained_at = time.monotonic() - GROW_AGAIN_AFTER

    def measure(self) -> WorkerLoad:
        """The load since the last call."""
        self._taken.append(self._claims.taken)
        load = WorkerLoad(
            busy=max(self._taken),
            more=bool(self._claims.waiting) or self._signals.filled,
            latency=self._watch.latency(),
            memory=memory_in_use(),
            cpu=self._cpu(),
            since_strained=time.monotonic() - self._strained_at,
        )
        if load.strained:
            self._strained_at = time.monotonic()
        return load

    def _cpu(self) -> float:
        """The share of a core that the loop's thread used, or that of all cores that the process used: the larger one.

        Python runs one thread at a time, so a loop that uses a whole core can do no more, however many cores there are.
        """
        before, self._clocks = self._clocks, (time.monotonic(), time.thread_time(), time.process_time())
        passed, loop, process = (now - then for now, then in zip(self._clocks, before, strict=True))
        return max(loop, process / self._cores) / max(passed, 1e-3)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
