"""A progress bar on stderr, if that is a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class Bar:
    """How far a bench is."""

    def __init__(self, progress: Progress, steps: float) -> None:
        self._progress = progress
        self._task = progress.add_task("bench", total=steps, told="")

    def tell(self, words: str) -> None:
        """Show what is running."""
        self._progress.update(self._task, told=words)

    def step(self, words: str = "", *, steps: float = 1) -> None:
        """Count finished steps."""
        self._progress.update(self._task, advance=steps, told=words)


@contextmanager
def bar(steps: float) -> Iterator[Bar]:
    """A bar for the length of the block.

    Args:
        steps: how many there will be.
    """
    columns = (TextColumn("{task.fields[told]}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        yield Bar(progress, steps)
