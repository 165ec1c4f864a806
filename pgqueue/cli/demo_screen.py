"""What the demo shows: lines, a live bar where there is a terminal, and the summary."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from pgqueue.cli.demo_stage import Progress
from pgqueue.cli.demo_verdict import Record, Summary, broken

LINE_EVERY = 1.0


class Screen:
    """Tells a person what happens."""

    def __init__(self, console: Console) -> None:
        """Begin.

        Args:
            console: where to; without a terminal behind it, progress becomes a line now and then.
        """
        self._console = console
        self._bar: Bar | None = None
        self._task = TaskID(0)
        self._started: float | None = None
        self._told_at = 0.0

    def title(self, text: str) -> None:
        """Say what this is."""
        self._console.print(Text(text, style="bold"))

    def say(self, text: str, *, style: str = "") -> None:
        """Say what happened."""
        self._console.print(Padding(Text(text, style=style), (0, 0, 0, 2)))

    @contextmanager
    def live(self, jobs: int) -> Iterator[None]:
        """Show progress for the length of the block."""
        bar = Bar(
            SpinnerColumn(finished_text=" "),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            expand=True,
        )
        with bar:
            self._bar = bar
            self._task = bar.add_task("jobs", total=jobs, told="")
            yield
        self._bar = None

    def progress(self, now: Progress) -> None:
        """Show how far the jobs are."""
        if self._bar is None:
            return
        told = f"{now.running} running, {now.reclaimed} reclaimed, {now.dead} dead, {self._rate(now):,.0f} jobs/s"
        self._bar.update(self._task, completed=now.ended, told=told)
        due = time.monotonic() - self._told_at >= LINE_EVERY or now.ended == now.jobs
        if not self._console.is_terminal and due:
            self._told_at = time.monotonic()
            self.say(f"{now.ended:,} of {now.jobs:,} jobs ended; {told}")

    def summary(self, summary: Summary) -> None:
        """Show how it went."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("")
        table.add_column("found", justify="right")
        table.add_column("must be", justify="right")
        table.add_column("")
        unreadable = len(summary.dead) - len(summary.wrongly_dead) + len(summary.not_dead)
        rows = (
            ("files", summary.files, "", True),
            ("jobs", summary.jobs, f"{summary.files:,}", summary.jobs == summary.files),
            ("lost", len(summary.lost), "0", not summary.lost),
            ("done twice in effect", len(summary.done_twice), "0", not summary.done_twice),
            ("wrong", len(summary.wrong), "0", not summary.wrong),
            ("reclaimed", len(summary.reclaimed), "> 0", bool(summary.reclaimed)),
            ("dead", len(summary.dead), f"{unreadable:,}", not (summary.not_dead or summary.wrongly_dead or summary.untold)),
        )
        for name, found, must_be, holds in rows:
            word = Text("ok", style="green") if holds else Text("BROKEN", style="bold red")
            table.add_row(name, f"{found:,}", must_be, word if must_be else "")
        table.add_row("jobs/s", f"{summary.jobs_per_second:,.0f}", "", f"{summary.seconds:.1f} s in all")
        self._console.print(Padding(table, (0, 0, 0, 2)))
