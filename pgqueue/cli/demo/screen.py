"""The demo's output: lines, a live bar on a terminal, and the summary."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from pgqueue.cli.demo.stage import Progress
from pgqueue.cli.demo.verdict import DeadFile, Summary

LINE_EVERY = 1.0
MOST_DEAD_SHOWN = 10


class Line(NamedTuple):
    """A line of the summary table: the value found, the value it must have, and whether it has it."""

    name: str
    found: int
    must_be: str
    holds: bool


class Screen:
    """Shows a user what happens."""

    def __init__(self, console: Console) -> None:
        """Write to a console.

        Args:
            console: the output; if it is not a terminal, progress is a line every LINE_EVERY seconds.
        """
        self._console = console
        self._bar: Bar | None = None
        self._task = TaskID(0)
        self._first_seen: float | None = None
        self._told_at = 0.0

    def title(self, text: str) -> None:
        """Print the title."""
        self._print(text, style="bold", indent=0)

    def say(self, text: str, *, style: str = "") -> None:
        """Print a line about what happened."""
        self._print(text, style=style)

    @contextmanager
    def live(self, jobs: int) -> Iterator[None]:
        """Show progress for the length of the block."""
        bar = Bar(
            TextColumn(" "),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            expand=True,
        )
        with bar:
            self._task = bar.add_task("jobs", total=jobs, told="")
            self._bar = bar
            yield
        self._bar = None

    def progress(self, now: Progress) -> None:
        """Show how many jobs have ended."""
        told = f"{now.running} running, {now.reclaimed} reclaimed, {now.dead} dead, {self._rate(now):,.0f} jobs/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=now.ended, told=told)
        due = time.monotonic() - self._told_at >= LINE_EVERY or now.ended == now.jobs
        if due and not self._console.is_terminal:
            self._told_at = time.monotonic()
            self.say(f"{now.ended:,} of {now.jobs:,} jobs ended; {told}")

    def summary(self, summary: Summary, complaints: Sequence[str]) -> None:
        """Show the results, and the promises that were broken."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for header in ("", "found", "must be"):
            table.add_column(header, justify="right" if header else "left")
        table.add_column("")
        table.add_row("files", f"{summary.files:,}")
        for line in _lines(summary):
            word = Text("ok", style="green") if line.holds else Text("BROKEN", style="bold red")
            table.add_row(line.name, f"{line.found:,}", line.must_be, word)
        table.add_row("jobs/s", f"{summary.jobs_per_second:,.0f}", "", f"in {summary.seconds:.1f} s")
        self._console.print(Padding(table, (0, 0, 0, 2), expand=False))
        self._dead(summary.dead)
        if summary.changed:
            self.say(f"{len(summary.changed):,} files changed meanwhile; their results were not checked.")
        for complaint in complaints:
            self.say(f"BROKEN {complaint}", style="bold red")
        if not complaints:
            self.say("Every promise was kept.", style="bold green")

    def _dead(self, dead: Sequence[DeadFile]) -> None:
        if dead:
            self.say("Dead jobs, and how their attempts ended:")
        for one in dead[:MOST_DEAD_SHOWN]:
            self._print(one.path, indent=4)
            for error, times in Counter(one.errors).items():
                self._print(f"{times} x {error}", style="dim", indent=6)
        if len(dead) > MOST_DEAD_SHOWN:
            self._print(f"and {len(dead) - MOST_DEAD_SHOWN:,} more", indent=4)
        self._console.print()

    def _rate(self, now: Progress) -> float:
        """Jobs per second since the first ended jobs were seen."""
        if self._first_seen is None:
            if now.ended:
                self._first_seen = time.monotonic()
            return 0.0
        return now.ended / max(time.monotonic() - self._first_seen, 0.1)

    def _print(self, text: str, *, style: str = "", indent: int = 2) -> None:
        """Print a line without wrapping it."""
        if self._console.is_terminal:
            self._console.print(Padding(Text(text, style=style), (0, 0, 0, indent), expand=False))
        else:
            self._console.print(Text(" " * indent + text), soft_wrap=True)


def _lines(summary: Summary) -> Sequence[Line]:
    unreadable = len(summary.dead) - len(summary.wrongly_dead) + len(summary.not_dead)
    rightly_dead = not (summary.wrongly_dead or summary.not_dead or summary.untold)
    return (
        Line("jobs", summary.jobs, f"{summary.files:,}", summary.jobs == summary.files),
        Line("lost", len(summary.lost), "0", not summary.lost),
        Line("done twice in effect", len(summary.done_twice), "0", not summary.done_twice),
        Line("wrong", len(summary.wrong), "0", not summary.wrong),
        Line("reclaimed", len(summary.reclaimed), "> 0", bool(summary.reclaimed)),
        Line("dead", len(summary.dead), f"{unreadable:,}", rightly_dead),
    )
