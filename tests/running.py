"""The type of the fixture ``running``."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from pgqueue.worker.worker import Worker

Running = Callable[..., AbstractAsyncContextManager[Worker]]
