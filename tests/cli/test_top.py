"""``pgqueue top``: what it shows, and what its keys do, by Textual's own driver and in a real terminal."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cli.commands import pgqueue, printed
from looking import ask, wait_until
from promises.processes import LEASE, do, listed
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from pgqueue import PgQueue
from pgqueue.cli import top, top_snapshot
from pgqueue.cli.times import short_duration
from pgqueue.cli.top_screen import ConfirmScreen, FittedTable, JobScreen, Top
from pgqueue.errors import ConfigurationError, ConnectionFailed
from pgqueue.store.jobs import claim

HOSTILE = "[bold]\x1b[31m\u202e"


def screen(queue: PgQueue, *, read_only: bool = False) -> Top:
    return Top(queue, interval=0.3, window=timedelta(minutes=10), read_only=read_only)


def shown(app: Top, table: str) -> list[list[str]]:
    found = app.screen_stack[0].query_one(f"#{table}", DataTable)
    return [[str(cell).strip() for cell in found.get_row_at(row)] for row in range(found.row_count)]


async def until(pilot: Pilot[None], is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await pilot.pause(0.02)


async def answer(pilot: Pilot[None], key: str, reply: str) -> str:
    """Press a key and answer its question; what was asked."""
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen))
    asked = str(pilot.app.screen.query_one(Static).content).splitlines()[0]
    await pilot.press(reply)
    await until(pilot, lambda: not isinstance(pilot.app.screen, ConfirmScreen))
    return asked


@pytest.fixture
def job(queue: PgQueue) -> int:
    """A running job, a ready one, and a dead one of a queue with a hostile name."""

    @queue.task(name="send", queue="mail")
    def send(_number: int) -> None: ...

    send.enqueue(1)
    worker = listed(queue, LEASE)
    ask(queue, "update pgqueue.workers set slots = 1, minimum = 1")
    (one,) = do(queue, claim.claim(worker, {"mail": 1}))
    send.enqueue(2)
    ask(
        queue,
        "insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, priority, attempts, max_attempts, collisions, reason, queue, task, args) "
        "values (900, now(), now(), now(), 0, 1, 1, 0, 'exhausted', %s, %s, '{}')",
        HOSTILE,
        HOSTILE,
    )
    return one.id


async def test_queues_workers_and_running_jobs_are_shown_and_hostile_names_send_no_control_codes(
    queue: PgQueue, job: int
) -> None:
    app = screen(queue)
    async with app.run_test(size=(200, 44)) as pilot:
        await until(pilot, lambda: shown(app, "jobs"))
        queues = {row[0]: row[1:7] for row in shown(app, "queues")}
        assert queues["mail"] == ["open", "1", "1", "0", "0", "0"]
        assert queues["[bold]\\x1b[31m\\u202e"] == ["open", "0", "0", "0", "0", "1"]
        assert [row[:3] for row in shown(app, "jobs")] == [[str(job), "send", "mail"]]
        assert [row[2:5] for row in shown(app, "workers")] == [["alive", "1", "1"]]
        assert "1 ready, 1 running" in str(app.query_one("#summary", Static).content)


async def test_a_key_asks_first_and_pauses_or_resumes_the_selected_queue(queue: PgQueue, job: int) -> None:
    assert job
    app = screen(queue)
    paused = "select name from pgqueue.queues where paused_at is not null"
    async with app.run_test(size=(160, 44)) as pilot:
        await until(pilot, lambda: shown(app, "queues"))
        assert "Pause queue mail?" in await answer(pilot, "p", "n")
        assert ask(queue, paused) == []
        await answer(pilot, "p", "y")
        await until(pilot, lambda: ["mail", "paused"] in [row[:2] for row in shown(app, "queues")])
        assert ask(queue, paused) == [("mail",)]
        assert await answer(pilot, "p", "y") == "Resume queue mail?"
        await until(pilot, lambda: not ask(queue, paused))
        assert "Close queue mail?" in await answer(pilot, "x", "y")
        await until(pilot, lambda: ["mail", "closed"] in [row[:2] for row in shown(app, "queues")])


async def test_workers_are_made_quiet_running_jobs_cancelled_and_dead_ones_retried(
    queue: PgQueue, job: int
) -> None:
    app = screen(queue)
    async with app.run_test(size=(160, 44)) as pilot:
        await until(pilot, lambda: shown(app, "jobs"))
        app.query_one("#jobs").focus()
        assert await answer(pilot, "c", "y") == f"Cancel job {job}?"
        await until(pilot, lambda: ask(queue, "select 1 from pgqueue.jobs where cancel_requested"))
        app.query_one("#workers").focus()
        assert "Make worker" in await answer(pilot, "x", "y")
        await until(pilot, lambda: ask(queue, "select 1 from pgqueue.workers where ask_quiet"))
        table = app.query_one("#queues", DataTable)
        table.focus()
        table.move_cursor(row=[row[0] for row in shown(app, "queues")].index("[bold]\\x1b[31m\\u202e"))
        assert await answer(pilot, "r", "y") == "Retry the 1 dead jobs of queue [bold]\\x1b[31m\\u202e?"
        await until(pilot, lambda: not ask(queue, "select 1 from pgqueue.dead_jobs"))


async def test_the_selected_row_stays_selected_when_others_come_before_it(queue: PgQueue) -> None:
    @queue.task
    def work() -> None: ...

    for name in ("b", "c"):
        work.using(queue=name).enqueue()
    app = screen(queue)
    async with app.run_test(size=(160, 44)) as pilot:
        await until(pilot, lambda: shown(app, "queues"))
        table = app.query_one("#queues", DataTable)
        table.move_cursor(row=[row[0] for row in shown(app, "queues")].index("c"))
        work.using(queue="a").enqueue()
        ask(queue, "update pgqueue.jobs set run_at = now() - interval '1 h' where queue = 'a'")
        await until(pilot, lambda: shown(app, "queues")[0][0] == "a")
        assert "Pause queue c?" in await answer(pilot, "p", "n")


async def test_keys_that_change_something_do_nothing_if_it_is_read_only(queue: PgQueue, job: int) -> None:
    assert job
    app = screen(queue, read_only=True)
    async with app.run_test(size=(160, 44)) as pilot:
        await until(pilot, lambda: shown(app, "queues"))
        for key in "pdrc":
            await pilot.press(key)
            await pilot.pause()
            assert not isinstance(app.screen, ConfirmScreen)


async def test_a_database_that_is_away_is_said_and_the_figures_come_back_with_it(
    queue: PgQueue, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert job
    app, read = screen(queue), top_snapshot.read

    def away(*_: object) -> top_snapshot.Snapshot:
        raise ConnectionFailed("no answer\nfrom [the] server")

    async with app.run_test(size=(160, 44)) as pilot:
        await until(pilot, lambda: shown(app, "queues"))
        monkeypatch.setattr(top_snapshot, "read", away)
        state = app.query_one("#state", Static)
        await until(pilot, lambda: "no answer from [the] server" in str(state.content))
        assert shown(app, "queues")
        monkeypatch.setattr(top_snapshot, "read", read)
        await until(pilot, lambda: "no answer" not in str(state.content))


async def test_frozen_figures_stay(queue: PgQueue, job: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert job
    app = screen(queue)
    async with app.run_test(size=(160, 44)) as pilot:
        await until(pilot, lambda: shown(app, "queues"))
        await pilot.press("space")
        looks: list[int] = []
        read = top_snapshot.read

        def counted(queue: PgQueue, window: timedelta) -> top_snapshot.Snapshot:
            looks.append(1)
            return read(queue, window)

        monkeypatch.setattr(top_snapshot, "read", counted)
        await pilot.pause(0.2)
        assert len(looks) <= 1  # one may have been on its way
        await pilot.press("space")
        await until(pilot, lambda: len(looks) > 2)


def test_it_prints_once_into_a_pipe_and_as_json(dsn: str, job: int) -> None:
    said = pgqueue("top", dsn=dsn).stdout
    assert "1 ready, 1 running" in said
    assert f"{job} " in said
    found = printed(pgqueue("top", "--json", dsn=dsn))
    assert {one["queue"] for one in found["queues"]} == {"mail", HOSTILE}


def test_without_textual_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.delitem(sys.modules, "pgqueue.cli.top_screen")
    with pytest.raises(ConfigurationError, match=r"pip install 'pgqueue-jobs\[top\]'"):
        top.screen()


async def test_a_job_is_opened_with_enter_and_closed_with_escape(queue: PgQueue, job: int) -> None:
    ask(
        queue,
        "update pgqueue.jobs set attempts = 2, errors = %s::jsonb",
        """[{"attempt": 1, "type": "ValueError", "message": "no [red]stamp", "traceback": "Traceback:\\n  line 3"}]""",
    )
    app = screen(queue)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: shown(app, "jobs"))
        app.query_one("#jobs").focus()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, JobScreen))
        record = str(app.screen.query_one(Static).content)
        assert record.startswith("task: send\nqueue: mail\nstate: running\nnow: attempt ")
        assert "\nargs: " in record
        assert "ValueError: no [red]stamp\nTraceback:\n  line 3\n" in record
        assert f"\nid: {job}\n" in record
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, JobScreen))
        assert app.is_running


async def test_a_narrow_screen_has_the_tables_below_each_other_and_names_the_columns_that_are_left_out(
    queue: PgQueue, job: int
) -> None:
    assert job
    app = screen(queue)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: shown(app, "jobs"))
        tables = [app.query_one(f"#{name}", FittedTable) for name in ("queues", "tasks", "workers", "jobs")]
        assert [one.region.x for one in tables] == [0, 0, 0, 0]
        assert [one.region.width for one in tables] == [80, 80, 80, 80]
        assert [one.region.y for one in tables] == sorted({one.region.y for one in tables})
        assert all(one.virtual_size.width <= one.scrollable_content_region.width for one in tables)
        await until(pilot, lambda: str(tables[0].border_title) == "Queues (left out: scheduled)")
        await pilot.resize_terminal(200, 44)
        await until(pilot, lambda: {one.region.x for one in tables} == {0, 100})
        await until(pilot, lambda: str(tables[0].border_title) == "Queues")


async def test_what_asks_for_a_look_is_coloured_and_numbers_stand_at_the_right(
    queue: PgQueue, job: int
) -> None:
    assert job
    queue.control.pause("mail")
    ask(
        queue,
        "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, idle, looked_at, look_within)"
        " values (gen_random_uuid(), 'infinity', 'web-1', 7, 5, '0', true, now() - interval '90 s', 36)",
    )
    app = screen(queue)
    async with app.run_test(size=(200, 44)) as pilot:
        await until(pilot, lambda: ["mail", "paused"] in [row[:2] for row in shown(app, "queues")])
        table = app.query_one("#queues", DataTable)
        rows = [table.get_row_at(row) for row in range(table.row_count)]
        mail, dead = ([*row] for row in sorted(rows, key=lambda row: str(row[0]).startswith("[bold]")))
        assert (mail[1].style, mail[6].style) == ("yellow", "")
        assert dead[6].style == "bold red"
        assert str(dead[6]) == "   1"
        stalled = app.query_one("#workers", DataTable).get_row_at(0)
        assert (str(stalled[2]), stalled[2].style) == ("stalled", "bold red")


async def test_the_first_line_says_whether_all_is_right(queue: PgQueue) -> None:
    @queue.task(queue="mail")
    def send() -> None: ...

    listed(queue, LEASE)
    app = screen(queue)
    async with app.run_test(size=(80, 24)) as pilot:
        verdict = app.query_one("#verdict", Static)
        await until(pilot, lambda: str(verdict.content).startswith("All right: 1 worker serves"))
        assert verdict.region.y == 0
        ask(queue, "delete from pgqueue.workers")
        send.enqueue()
        await until(pilot, lambda: str(verdict.content).startswith("No worker is alive: 1 job waits"))
        assert str(verdict.content).endswith("(pgqueue worker)")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Commands of a tmux server of its own."""
    tmux = shutil.which("tmux")
    assert tmux is not None, "install tmux (make test does)"

    def run(*arguments: str) -> str:
        done = subprocess.run(  # noqa: S603 - a fixed program
            [tmux, "-S", str(tmp_path / "tmux"), "-f", "/dev/null", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    yield run
    run("kill-server")


@pytest.mark.parametrize("asked", [False, True], ids=["at the tables", "at a question"])
async def test_ctrl_c_quits(queue: PgQueue, job: int, asked: bool) -> None:  # noqa: FBT001 - a case
    assert job
    app = screen(queue)
    async with app.run_test(size=(160, 44)) as pilot:
        await until(pilot, lambda: shown(app, "queues"))
        if asked:
            await pilot.press("p")
            await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.is_running)


def test_in_a_terminal_it_shows_the_queues_pauses_one_and_ends(
    dsn: str, queue: PgQueue, job: int, terminal: Callable[..., str]
) -> None:
    assert job
    words = [sys.executable, "-m", "pgqueue", "--dsn", dsn, "top", "--interval", "0.5"]
    terminal("new-session", "-d", "-x", "150", "-y", "40", "env", "-u", "COLUMNS", "-u", "LINES", *words)

    def sees(text: str) -> Callable[[], bool]:
        return lambda: text in terminal("capture-pane", "-p")

    wait_until(sees("mail"))
    terminal("send-keys", "p")
    wait_until(sees("Pause queue mail?"))
    terminal("send-keys", "y")
    wait_until(sees("paused"))
    assert ask(queue, "select name from pgqueue.queues where paused_at is not null") == [("mail",)]
    terminal("send-keys", "q")
    wait_until(lambda: not terminal("list-sessions"))


def test_in_80_columns_nothing_is_cut_without_a_word_and_a_job_is_opened(
    dsn: str, job: int, terminal: Callable[..., str]
) -> None:
    words = [sys.executable, "-m", "pgqueue", "--dsn", dsn, "top", "--interval", "0.5"]
    terminal("new-session", "-d", "-x", "80", "-y", "24", "env", "-u", "COLUMNS", "-u", "LINES", *words)

    def sees(text: str) -> Callable[[], bool]:
        return lambda: text in terminal("capture-pane", "-p")

    wait_until(sees(f"{job}  send"))
    said = terminal("capture-pane", "-p")
    assert " ".join(said.split()).index("1 worker, 1 slots") < said.index("Queues")  # the summary is whole
    for head in (
        "queue",
        "ready",
        "running",
        "dead",
        "oldest",
        "task",
        "failed",
        "run p95",
        "slots",
        "claims",
        "attempt",
    ):
        assert head in said, head
    terminal("send-keys", "BTab")
    wait_until(sees("details"))
    terminal("send-keys", "Enter")
    wait_until(sees(f"Job {job}"))
    wait_until(sees("state: running"))
    terminal("send-keys", "Escape")
    wait_until(lambda: "state: running" not in terminal("capture-pane", "-p"))


def test_lengths_of_time_are_short() -> None:
    lengths = (None, 0.0004, 0.34, 4.26, 59.9, 200, 7_500, 273_600)
    assert [*map(short_duration, lengths)] == [
        "",
        "0 ms",
        "340 ms",
        "4.3 s",
        "59 s",
        "3 min 20 s",
        "2 h 5 min",
        "3 d 4 h",
    ]
