"""The screen of ``pgqueue top``: four tables that are read again and again, and keys that act on the selected row.

What is shown is in :mod:`pgqueue.cli.top_snapshot`, what the keys do in :mod:`pgqueue.cli.top_actions`. The database is asked in
threads, so the screen answers keys while the database does not.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import psycopg
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli import top_snapshot
from pgqueue.cli.job_record import record_text
from pgqueue.cli.table import Column, fit
from pgqueue.cli.times import short_duration
from pgqueue.cli.top_actions import KEYS, KeyAction, action
from pgqueue.cli.top_snapshot import Row, Snapshot
from pgqueue.errors import PgQueueError
from pgqueue.values.payloads.storable import spelled_out

TABLES: Mapping[str, tuple[str, Sequence[Column]]] = {
    "queues": ("Queues", top_snapshot.QUEUES),
    "tasks": ("Tasks", top_snapshot.TASKS),
    "workers": ("Workers", top_snapshot.WORKERS),
    "jobs": ("Running jobs", top_snapshot.JOBS),
}


STACKED = 120
"""Characters: a narrower screen shows the tables one below the other."""


class FittedTable(DataTable[Text]):
    """A table that shows the columns that fit, and names those that do not in its title."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name, cursor_type="row", zebra_stripes=True)
        self._title, self._declared = TABLES[name]
        self.border_title = self._title

    @property
    def selected(self) -> str | None:
        """The key of the selected row; None: there is no row."""
        if not self.row_count:
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value

    def fill(self, rows: Mapping[str, Row]) -> None:
        """Show other rows; the selected row stays selected, and the table where it was scrolled to."""
        selected, offset = self.selected, self.scroll_offset
        room = self.scrollable_content_region.width - 2 * self.cell_padding
        found = fit(self._declared, [*rows.values()], width=room, gap=2 * self.cell_padding)
        self.clear(columns=True)
        self.add_columns(*map(Text, found.heads))
        for key, row in zip(rows, found.rows, strict=True):
            self.add_row(*(Text(cell.text, style=cell.style) for cell in row), key=key)
        left_out = f" (left out: {', '.join(found.left_out)})" if found.left_out else ""
        self.border_title = f"{self._title}{left_out}"
        if selected is not None and selected in rows:
            self.move_cursor(row=self.get_row_index(selected), animate=False, scroll=False)
        self.scroll_to(*offset, animate=False)


class JobTable(FittedTable):
    """The running jobs, of which one can be opened."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "details")]


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


class JobScreen(ModalScreen[None]):
    """The record of a job: its state, why it does not run or end, its arguments and errors, without its secrets."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", "back")]
    CSS = """
    JobScreen { align: center middle; }
    JobScreen > VerticalScroll { width: 90%; height: auto; max-height: 90%; padding: 0 1; border: round $accent; background: $surface; }
    JobScreen Static { height: auto; }
    """

    def __init__(self, job_id: str, record: str) -> None:
        super().__init__()
        self._job_id, self._record = job_id, record

    def compose(self) -> ComposeResult:
        """Draw it."""
        with VerticalScroll() as box:
            box.border_title, box.border_subtitle = f"Job {self._job_id}", "Esc: back"
            yield Static(Text(self._record))


class Top(App[None]):
    """The screen."""

    TITLE = "pgqueue top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #verdict, #summary, #state { height: auto; padding: 0 1; }
    #summary { text-style: bold; }
    Horizontal > Vertical { width: 1fr; }
    DataTable { height: 1fr; border: round $panel; border-title-style: bold; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    DataTable:focus { border: round $accent; }
    .stacked Horizontal { layout: vertical; }
    .stacked Horizontal > Vertical { width: 100%; height: 1fr; }
    .stacked Horizontal > Vertical:focus-within { height: 2fr; }
    .stacked DataTable { border: none; border-top: solid $panel; }
    .stacked DataTable:focus { height: 2fr; border: none; border-top: solid $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        # Textual's own binding of this key only shows how to quit. With priority it quits from a question, too.
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("space", "freeze", "freeze"),
        Binding("p", "act('p')", "pause"),
        Binding("x", "act('x')", "close or make quiet"),
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
        self._verdict, self._summary, self._state = (
            Static(id="verdict"),
            Static(id="summary"),
            Static(id="state"),
        )
        self._tables = {name: JobTable(name) if name == "jobs" else FittedTable(name) for name in TABLES}

    def compose(self) -> ComposeResult:
        """Draw the tables, empty."""
        yield self._verdict
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
        self._tables["queues"].focus()
        self._follow()
        self.set_interval(1.0, self._show_state)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that do nothing in the table that is shown are not listed."""
        if action != "act":
            return True
        table = self.focused
        return not self._read_only and table is not None and (table.id or "", str(parameters[0])) in KEYS

    def on_resize(self, event: Resize) -> None:
        """Put the tables beside each other, or below each other."""
        self.screen_stack[0].set_class(event.size.width < STACKED, "stacked")
        self.call_after_refresh(self._show_again)

    def _show_again(self) -> None:
        if self._found is not None:
            self._show(self._found)

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
        said, style = top_snapshot.verdict(found)
        self._verdict.update(Text(said, style=style))
        summary = Text(top_snapshot.summary(found))
        summary.highlight_regex(r"~?[1-9][\d,]* dead", "bold red")
        self._summary.update(summary)
        self._tables["queues"].fill(top_snapshot.queue_rows(found))
        self._tables["tasks"].fill(top_snapshot.task_rows(found))
        self._tables["workers"].fill(top_snapshot.worker_rows(found))
        self._tables["jobs"].fill(top_snapshot.job_rows(found))

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

    def action_freeze(self) -> None:
        """Stop to look, or go on."""
        self._frozen = not self._frozen
        self._show_state()

    @work
    async def action_act(self, key: str) -> None:
        """Ask, and do what the key says with the selected row."""
        table = self.focused
        if not isinstance(table, FittedTable) or self._found is None:
            return
        row = table.selected
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

    @work
    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the job of the selected row."""
        if event.data_table is not self._tables["jobs"] or event.row_key.value is None:
            return
        try:
            record = await asyncio.to_thread(record_text, self._queue, int(event.row_key.value))
        except (PgQueueError, psycopg.Error, OSError) as error:
            self.notify(spelled_out(" ".join(str(error).split())), severity="error", markup=False)
        else:
            await self.push_screen(JobScreen(event.row_key.value, record))

    async def _do(self, chosen: KeyAction) -> None:
        self.notify(await asyncio.to_thread(chosen.act), markup=False)
        await self._look()
