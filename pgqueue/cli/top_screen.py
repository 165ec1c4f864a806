"""The screen of ``pgqueue top``: four tables that are read again and again, and keys that act on the selected row.

What is shown is in :mod:`pgqueue.cli.top_snapshot`. An action asks one question, does one thing, and says what it has done. The database
is asked in threads, so the screen answers keys while the database does not.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import ClassVar, Final

import psycopg
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli import top_snapshot
from pgqueue.cli.output import short_duration
from pgqueue.cli.top_snapshot import Row, Snapshot
from pgqueue.errors import PgQueueError
from pgqueue.values.jobs.job import JobState
from pgqueue.values.payloads.storable import spelled_out
from pgqueue.values.workers.worker import Steered

KEYS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("queues", "p"): "pause or resume",
        ("queues", "d"): "drain or take new jobs again",
        ("queues", "r"): "retry its dead jobs",
        ("tasks", "r"): "retry its dead jobs",
        ("workers", "d"): "drain or claim again",
        ("jobs", "c"): "cancel",
    }
)
"""What a key does in a table."""


@dataclass(frozen=True)
class KeyAction:
    """What a key would do.

    Attributes:
        question: what the user is asked before.
        act: does it, and returns a sentence that says what was done.
    """

    question: str
    act: Callable[[], str]


TABLES: Mapping[str, tuple[str, Sequence[str]]] = {
    "queues": ("Queues", top_snapshot.QUEUES),
    "tasks": ("Tasks", top_snapshot.TASKS),
    "workers": ("Workers", top_snapshot.WORKERS),
    "jobs": ("Running jobs", top_snapshot.JOBS),
}


def _table(name: str) -> DataTable[Text]:
    table: DataTable[Text] = DataTable(id=name, cursor_type="row", zebra_stripes=True)
    table.border_title = TABLES[name][0]
    return table


class ConfirmScreen(ModalScreen[bool]):
    """A question that is answered with y or n."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no"),
    ]
    CSS = """
    Question { align: center middle; }
    Question > Static { width: auto; max-width: 80%; height: auto; padding: 1 2; border: round $warning; background: $surface; }
    """

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Draw it."""
        yield Static(Text(f"{self._question}\n\ny: yes   n: no"))

    def action_answer(self, yes: bool) -> None:  # noqa: FBT001 - an action's argument has no name
        """Close it."""
        self.dismiss(yes)


class Top(App[None]):
    """The screen."""

    TITLE = "pgqueue top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary, #state { height: 1; padding: 0 1; }
    #summary { text-style: bold; }
    Horizontal > Vertical { width: 1fr; }
    DataTable { height: 1fr; border: round $panel; border-title-style: bold; }
    DataTable:focus { border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        # Textual's own binding of this key only shows how to quit. With priority it quits from a question, too.
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("space", "freeze", "freeze"),
        Binding("p", "act('p')", "pause"),
        Binding("d", "act('d')", "drain"),
        Binding("r", "act('r')", "retry"),
        Binding("c", "act('c')", "cancel"),
        Binding("tab", "app.focus_next", "next table", show=True),
    ]

    def __init__(self, queue: PgQueue, *, interval: float, window: timedelta, read_only: bool) -> None:
        """``interval``: seconds between two looks. ``window``: the time over which tasks are summed up."""
        super().__init__()
        self._queue = queue
        self._interval = interval
        self._window = window
        self._read_only = read_only
        self._frozen = False
        self._found: Snapshot | None = None
        self._trouble = ""
        self._summary, self._state = Static(id="summary"), Static(id="state")
        self._tables = {name: _table(name) for name in TABLES}

    def compose(self) -> ComposeResult:
        """Draw the tables, empty."""
        yield self._summary
        yield self._state
        with Horizontal():
            for left, right in (("queues", "tasks"), ("workers", "jobs")):
                with Vertical():
                    yield self._tables[left]
                    yield self._tables[right]
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        for name, (_, heads) in TABLES.items():
            self._tables[name].add_columns(*heads)
        self._tables["queues"].focus()
        self._follow()
        self.set_interval(1.0, self._show_state)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that do nothing in the table that is shown are not listed."""
        if action != "act":
            return True
        table = self.focused
        return not self._read_only and table is not None and (table.id or "", str(parameters[0])) in KEYS

    def on_descendant_focus(self) -> None:
        """Other keys are of use in another table."""
        self.refresh_bindings()

    @work(exclusive=True)
    async def _follow(self) -> None:
        while True:
            if not self._frozen:
                await self._look()
            await asyncio.sleep(self._interval)

    async def _look(self) -> None:
        try:
            self._found = await asyncio.to_thread(top_snapshot.read, self._queue, self._window)
            self._trouble = ""
        except (PgQueueError, psycopg.Error, OSError) as error:
            self._trouble = spelled_out(" ".join(str(error).split()))
        if self._found is not None and not self._trouble:
            self._show(self._found)
        self._show_state()

    def _show(self, found: Snapshot) -> None:
        self._summary.update(Text(top_snapshot.summary(found)))
        self._fill("queues", top_snapshot.queue_rows(found))
        self._fill("tasks", top_snapshot.task_rows(found))
        self._fill("workers", top_snapshot.worker_rows(found))
        self._fill("jobs", top_snapshot.job_rows(found))

    def _show_state(self) -> None:
        if self._found is None:
            said = "reading"
        else:
            age = (datetime.now(UTC) - self._found.at).total_seconds()
            said = f"read {short_duration(age)} ago; tasks over the last {self._found.minutes:g} min"
        if self._frozen:
            said += "; frozen: space goes on"
        if self._trouble:
            said += f"; {self._trouble}"
        self._state.update(Text(said, style="bold red" if self._trouble else "dim"))

    def _fill(self, name: str, rows: Mapping[str, Row]) -> None:
        table = self._tables[name]
        selected, offset = self._selected(table), table.scroll_offset
        table.clear()
        for key, row in rows.items():
            table.add_row(*(Text(cell) for cell in row), key=key)
        if selected is not None and selected in rows:
            table.move_cursor(row=table.get_row_index(selected), animate=False, scroll=False)
        table.scroll_to(*offset, animate=False)

    def _selected(self, table: DataTable[Text]) -> str | None:
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    def action_freeze(self) -> None:
        """Stop to look, or go on."""
        self._frozen = not self._frozen
        self._show_state()

    @work
    async def action_act(self, key: str) -> None:
        """Ask, and do what the key says with the selected row."""
        table = self.focused
        if not isinstance(table, DataTable) or self._found is None:
            return
        row = self._selected(table)
        if row is None:
            return
        try:
            chosen = await asyncio.to_thread(action, self._queue, self._found, table.id or "", key, row)
            if chosen is None:
                self.notify("There is nothing to do.")
            elif await self.push_screen_wait(ConfirmScreen(chosen.question)):
                await self._do(chosen)
        except (PgQueueError, psycopg.Error, OSError) as error:
            self.notify(spelled_out(" ".join(str(error).split())), severity="error", markup=False)

    async def _do(self, chosen: KeyAction) -> None:
        self.notify(await asyncio.to_thread(chosen.act), markup=False)
        await self._look()


def action(queue: PgQueue, found: Snapshot, table: str, key: str, row: str) -> KeyAction | None:
    """What a key does with a row; None: nothing.

    Args:
        queue: where.
        found: what the user sees.
        table: in which table the row is: ``queues``, ``tasks``, ``workers`` or ``jobs``.
        key: which key was pressed.
        row: the queue's or the task's name, the worker's or the job's id.
    """
    match table, key:
        case "queues", "p":
            return _pause(queue, found, row)
        case "queues", "d":
            return _drain(queue, found, row)
        case (("queues" | "tasks"), "r") if row:
            return _retry(queue, table, row)
        case "workers", "d":
            return _drain_worker(queue, found, row)
        case "jobs", "c":
            return KeyAction(f"Cancel job {row}?", lambda: _describe_cancel(row, queue.cancel(int(row))))
    return None


def _pause(queue: PgQueue, found: Snapshot, name: str) -> KeyAction:
    shown = spelled_out(name)
    if any(one.paused_at for one in found.queues if one.queue == name):
        return KeyAction(
            f"Resume queue {shown}?",
            lambda: (
                f"queue {shown} is resumed" if queue.control.resume(name) else f"queue {shown} was not paused"
            ),
        )
    return KeyAction(
        f"Pause queue {shown}? No worker claims its jobs then.",
        lambda: (
            f"queue {shown} is paused" if queue.control.pause(name) else f"queue {shown} was paused already"
        ),
    )


def _drain(queue: PgQueue, found: Snapshot, name: str) -> KeyAction:
    shown = spelled_out(name)
    if any(one.drained_at for one in found.queues if one.queue == name):
        return KeyAction(
            f"Let queue {shown} take new jobs again?",
            lambda: (
                f"queue {shown} takes new jobs"
                if queue.control.resume(name)
                else f"queue {shown} was not drained"
            ),
        )
    return KeyAction(
        f"Drain queue {shown}? Enqueues to it are refused then.",
        lambda: (
            f"queue {shown} is drained" if queue.control.drain(name) else f"queue {shown} was drained already"
        ),
    )


def _retry(queue: PgQueue, table: str, name: str) -> KeyAction | None:
    dead = queue.control.dead(queue=name) if table == "queues" else queue.control.dead(task=name)
    count = dead.preview().count
    if not count:
        return None
    of = f"{table[:-1]} {spelled_out(name)}"
    return KeyAction(
        f"Retry the {count:,} dead jobs of {of}?", lambda: f"{dead.retry().done:,} jobs of {of} are retried"
    )


def _drain_worker(queue: PgQueue, found: Snapshot, worker: str) -> KeyAction | None:
    one = next((one for one in found.workers if str(one.id) == worker), None)
    if one is None:
        return None
    if one.draining or one.asked.draining:
        return KeyAction(
            f"Let worker {one} claim jobs again?", lambda: _describe_request(queue.workers.resume(worker))
        )
    return KeyAction(
        f"Drain worker {one}? It ends its jobs and claims no more.",
        lambda: _describe_request(queue.workers.drain(worker)),
    )


def _describe_request(steered: Steered) -> str:
    return "; ".join([*(f"worker {one} was asked" for one in steered.asked), *steered.refused])


def _describe_cancel(job: str, state: JobState | None) -> str:
    if state is None:
        return f"job {job} has ended"
    return (
        f"the worker of job {job} was asked to stop it"
        if state is JobState.RUNNING
        else f"job {job} is cancelled"
    )
