"""Tests."""

import io
import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, LiteralString

import psycopg
import pytest
from ciphers import Secret
from cli.commands import cells, pgqueue, printed
from looking import ask
from rich.console import Console

from pgqueue import JobState, PgQueue
from pgqueue.cli import bulk as bulk_command
from pgqueue.cli import job_record as verbs
from pgqueue.cli.times import zone
from pgqueue.store.bulk import bulk
from pgqueue.store.insight import searching
from pgqueue.store.workers import stacks


@pytest.fixture
def shelf(queue: PgQueue) -> PgQueue:
    """A queue with four jobs: 1 waits, 2 is scheduled, 3 is dead, 4 has succeeded."""

    @queue.task(name="sell", max_attempts=1)
    def sell(book: str) -> None: ...

    sell.using(queue="quick", unique_key="one").enqueue("waits")
    sell.using(delay=timedelta(hours=1)).enqueue("is scheduled")
    sell.using(priority=5).enqueue("is dead")
    sell.enqueue("has succeeded")
    with queue.take(2, queues=["default"]) as (dying, _):
        dying.fail("no \x1b[31mstock\nat all")
    return queue


def test_list_shows_every_job_newest_first(shelf: PgQueue, dsn: str) -> None:
    rows = cells(pgqueue("jobs", "list", dsn=dsn))
    assert [row[:6] for row in rows] == [
        ["4", "succeeded", "default", "sell", "0", "1/1"],
        ["3", "dead", "default", "sell", "5", "1/1"],
        ["2", "scheduled", "default", "sell", "0", "0/1"],
        ["1", "ready", "quick", "sell", "0", "0/1"],
    ]
    assert shelf.job(3).state is JobState.DEAD


def test_list_says_which_time_it_shows_and_in_which_zone(shelf: PgQueue, dsn: str) -> None:
    shown = pgqueue("jobs", "list", dsn=dsn).stdout
    assert f"time ({zone()})" in shown.splitlines()[0]
    times = {line.split()[0]: line.split()[6:9] for line in shown.splitlines()[1:]}
    assert [times[number][0] for number in "1234"] == ["due", "due", "ended", "ended"]
    assert " ".join(times["2"][1:]) == f"{shelf.job(2).run_at.astimezone():%Y-%m-%d %H:%M:%S}"


def test_list_as_json_is_one_array_of_whole_jobs_with_iso_times(shelf: PgQueue, dsn: str) -> None:
    jobs = printed(pgqueue("jobs", "list", "--json", dsn=dsn))
    assert [job["id"] for job in jobs] == [4, 3, 2, 1]
    assert jobs[3]["args"] == {"book": "waits"}
    assert jobs[1]["errors"][0]["message"] == "no \x1b[31mstock\nat all"
    assert not any("result" in job for job in jobs)  # a search does not read them
    for job, told in zip(jobs, shelf.insight.search().jobs, strict=True):
        assert datetime.fromisoformat(job["run_at"]) == told.run_at


@pytest.mark.parametrize(
    "words", [["why", "abc"], ["jobs", "show", "0"], ["jobs", "cancel", "9" * 30]], ids=str
)
def test_what_is_no_id_is_answered_in_words(dsn: str, words: list[str]) -> None:
    said = pgqueue(*words, dsn=dsn)
    assert said.exit_code == 2
    assert f"'{words[-1]}' is not an id: give the number that a list shows" in said.stderr


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--state", "dead"], [3]),
        (["--state", "dead", "--state", "ready"], [3, 1]),
        (["--queue", "quick"], [1]),
        (["--task", "sell", "--limit", "2"], [4, 3]),
        (["--task", "buy"], []),
        (["--unique-key", "one"], [1]),
        (["--before", "3"], [2, 1]),
    ],
)
@pytest.mark.usefixtures("shelf")
def test_list_filters(words: list[str], ids: list[int], dsn: str) -> None:
    assert [job["id"] for job in printed(pgqueue("jobs", "list", "--json", *words, dsn=dsn))] == ids


@pytest.mark.usefixtures("shelf")
def test_a_full_page_says_how_to_get_the_next(dsn: str) -> None:
    assert "--before 3" in pgqueue("jobs", "list", "--limit", "2", dsn=dsn).stderr
    assert pgqueue("jobs", "list", "--limit", "5", dsn=dsn).stderr == ""


def test_an_empty_list_says_so_beside_the_output(dsn: str) -> None:
    result = pgqueue("jobs", "list", dsn=dsn)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no jobs match\n")
    assert printed(pgqueue("jobs", "list", "--json", dsn=dsn)) == []


@pytest.mark.usefixtures("shelf")
def test_a_long_row_is_whole_in_a_pipe(dsn: str, queue: PgQueue) -> None:
    name = "n" * 200
    queue.task(name=name)(lambda: None).enqueue()
    assert name in pgqueue("jobs", "list", dsn=dsn).stdout


@pytest.mark.parametrize("words", [["list"], ["show", "3"]])
@pytest.mark.usefixtures("shelf")
def test_stored_text_cannot_write_to_the_terminal(words: list[str], dsn: str) -> None:
    shown = pgqueue("jobs", *words, dsn=dsn).stdout
    assert "\x1b" not in shown
    assert r"no \x1b[31mstock" in shown


NAMED = "\x1b]0;owned\x07\x9b31m\u202eevil\u2066\x7f\N{GRINNING FACE}\U000e0041"
HOSTILE = f"{NAMED}\u2028\n"


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "list"],
        ["jobs", "list", "--json"],
        ["jobs", "show", "1"],
        ["jobs", "show", "1", "--json"],
        ["jobs", "show", "1", "--pytest"],
        ["jobs", "show", "2"],
        ["jobs", "show", "2", "--json"],
        ["jobs", "cancel", "--queue", NAMED, "--dry-run"],
        ["jobs", "run-now", "1"],
        ["dead", "list"],
        ["dead", "list", "--json"],
        ["dead", "retry", "--queue", NAMED, "--dry-run"],
        ["dead", "retry", "1"],
        ["why", "2"],
        ["queues", "list"],
        ["queues", "list", "--json"],
        ["queues", "show", NAMED],
        ["audit", "list"],
        ["audit", "list", "--json"],
    ],
    ids=lambda words: " ".join(words).replace(NAMED, "NAMED"),
)
def test_nothing_that_the_shell_prints_of_a_job_is_obeyed_by_a_terminal(
    queue: PgQueue, dsn: str, words: list[str]
) -> None:
    @queue.task(name=NAMED, queue=NAMED, max_attempts=1)
    def hostile(text: dict[str, str]) -> None: ...

    job = hostile.using(unique_key=HOSTILE, meta={HOSTILE: HOSTILE}).enqueue({HOSTILE: HOSTILE})
    assert job.id == 1
    with queue.take(1) as (dying,):
        dying.fail(ValueError(HOSTILE))
    hostile.using(unique_key=HOSTILE).enqueue({HOSTILE: HOSTILE})
    queue.control.pause(NAMED, why=HOSTILE, by=HOSTILE)

    found = pgqueue(*words, dsn=dsn)
    shown = found.stdout + found.stderr
    assert [one for one in shown if not one.isprintable() and one != "\n"] == []
    if "--json" in words:
        assert "evil" in found.stdout


@pytest.mark.usefixtures("shelf")
def test_show_tells_everything_of_a_job(dsn: str) -> None:
    shown = pgqueue("jobs", "show", "3", dsn=dsn).stdout
    for words in (
        "state        dead",
        'args         {"book":"is dead"}',
        "reason       exhausted",
        "\nattempt 1, ",
    ):
        assert words in shown
    assert printed(pgqueue("jobs", "show", "3", "--json", dsn=dsn))["reason"] == "exhausted"


@pytest.mark.usefixtures("shelf")
def test_show_says_why_a_job_does_not_run(dsn: str) -> None:
    (ready,) = [
        one for one in pgqueue("jobs", "show", "1", dsn=dsn).stdout.splitlines() if one.startswith("now ")
    ]
    assert ready.startswith("now          it is ready, and has been due for ")
    assert "no worker is alive: start one with `pgqueue worker`" in ready
    due = r"\nnow +it is due in 60 min, at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC; no worker is alive"
    assert re.search(due, pgqueue("jobs", "show", "2", dsn=dsn).stdout)
    assert "\nnow " not in pgqueue("jobs", "show", "3", dsn=dsn).stdout


@pytest.mark.usefixtures("shelf")
def test_show_tells_how_many_errors_are_not_kept(queue: PgQueue, dsn: str) -> None:
    with queue.database.pooled() as connection:
        connection.execute(
            "update pgqueue.dead_jobs set errors = jsonb_set(errors, '{0,left_out}', '354') where id = 3"
        )
    assert "\n(354 more errors followed; " in pgqueue("jobs", "show", "3", dsn=dsn).stdout


def test_show_refuses_a_job_that_there_is_no_record_of(dsn: str) -> None:
    result = pgqueue("jobs", "show", "99", dsn=dsn)
    assert result.exit_code == 2
    assert result.stderr.startswith("pgqueue: error: no record of job 99")


def test_cancel_ends_waiting_jobs(shelf: PgQueue, dsn: str) -> None:
    result = pgqueue("jobs", "cancel", "1", "2", dsn=dsn)
    assert (result.exit_code, result.stdout) == (0, "1: cancelled\n2: cancelled\n")
    assert shelf.job(1).state is shelf.job(2).state is JobState.CANCELLED


@pytest.mark.usefixtures("shelf")
def test_cancel_says_what_it_left_alone_and_does_the_rest(dsn: str) -> None:
    result = pgqueue("jobs", "cancel", "4", "1", "99", dsn=dsn)
    assert (result.exit_code, result.stdout) == (1, "1: cancelled\n")
    assert result.stderr == "4: not changed: succeeded\n99: there is no record of it\n"


def test_cancel_asks_the_worker_of_a_running_job(shelf: PgQueue, dsn: str) -> None:
    with shelf.take(1, queues=["quick"]):
        result = pgqueue("jobs", "cancel", "1", dsn=dsn)
    assert (result.exit_code, result.stdout) == (0, "1: running; its worker is asked to stop it\n")


def test_run_now_makes_scheduled_jobs_ready(shelf: PgQueue, dsn: str) -> None:
    result = pgqueue("jobs", "run-now", "2", dsn=dsn)
    assert (result.exit_code, result.stdout) == (0, "2: ready\n")
    assert shelf.job(2).state is JobState.READY
    assert [one.action for one in shelf.insight.audit()] == ["run now"]
    assert shelf.job(2).run_at <= datetime.now(UTC) + timedelta(minutes=30)


@pytest.mark.usefixtures("shelf")
def test_run_now_leaves_other_jobs_alone_and_names_the_verb_for_dead_ones(dsn: str) -> None:
    result = pgqueue("jobs", "run-now", "1", "3", "4", dsn=dsn)
    assert (result.exit_code, result.stderr.splitlines()) == (
        1,
        [
            "1: not changed: ready",
            "3: not changed: dead; `pgqueue dead retry 3` makes it ready again",
            "4: not changed: succeeded",
        ],
    )
    result = pgqueue("dead", "retry", "2", dsn=dsn)
    assert (result.exit_code, result.stderr) == (
        1,
        "2: not changed: scheduled; `pgqueue jobs run-now 2` starts it before its time\n",
    )


@pytest.mark.usefixtures("shelf")
def test_a_list_that_stopped_before_its_end_says_where_the_next_one_goes_on(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "FIRST", 1)
    monkeypatch.setattr(searching, "LOOKED_AT", 1)
    for form in ([], ["--json"]):
        result = pgqueue("jobs", "list", "--task", "nothing", *form, dsn=dsn)
        assert result.exit_code == 0
        assert result.stderr.endswith("older jobs than 3 were not looked at: --before 3\n")


@pytest.mark.parametrize("job_id", ["0", "-1", "x", "9223372036854775808"])
def test_what_is_no_id_is_refused(job_id: str) -> None:
    assert pgqueue("jobs", "show", "--", job_id).exit_code == 2


def test_show_decodes_with_the_apps_codec_and_never_without(shop: Path, dsn: str) -> None:
    (shop / "coded.py").write_text(
        "from ciphers import Secret\nfrom pgqueue import PgQueue\nqueue = PgQueue(codec=Secret('k1'))\n"
    )
    queue = PgQueue(dsn, codec=Secret("k1"))

    @queue.task(name="sell", max_attempts=1)
    def sell(book: str) -> None: ...

    job = sell.using(unique_key="isbn").enqueue("a rare book")
    with queue.take() as (dying,):
        dying.fail("no rare book")
    queue.close()
    known = pgqueue("--app", "coded:queue", "jobs", "show", str(job.id), dsn=dsn).stdout
    assert '{"book":"a rare book"}' in known
    assert "JobError: no rare book" in known
    (told,) = printed(pgqueue("--app", "coded:queue", "dead", "list", "--json", dsn=dsn))
    assert (told["args"], told["errors"][0]["message"]) == ({"book": "a rare book"}, "no rare book")
    unknown = pgqueue("jobs", "show", str(job.id), dsn=dsn).stdout
    assert "rare" not in unknown
    assert "JobError: (encoded)" in unknown


GIVE_BACK: LiteralString = "update pgqueue.jobs set status = 'ready', worker_id = null"


@pytest.fixture
def halfway(queue: PgQueue) -> int:
    """A job that runs in a take's name, and has reported its progress."""

    @queue.task(name="count")
    def count() -> None: ...

    job = count.enqueue()
    ask(queue, "update pgqueue.jobs set status = 'running', claimed_at = now(), attempts = 1")
    report(queue, job.id, done=1200, total=4800, message='it\'s \x1b[31m"half"')
    return job.id


def steps(*happen: Callable[[], object]) -> Callable[[float], object]:
    left = list(happen)
    return lambda _: left.pop(0)()


def report(queue: PgQueue, job_id: int, **said: object) -> None:
    ask(
        queue,
        "insert into pgqueue.notes (job_id, kind, value) values (%s, 'progress', %s) "
        "on conflict (job_id, kind, name) do update set value = excluded.value",
        job_id,
        json.dumps(said),
    )


def test_show_tells_how_far_a_job_is_and_no_control_codes(queue: PgQueue, halfway: int, dsn: str) -> None:
    shown = pgqueue("jobs", "show", str(halfway), dsn=dsn).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("progress")]
    assert line.startswith('progress     1,200 of 4,800 (25 %): it\'s \\x1b[31m"half", at 20')
    report(queue, halfway, done=0.5)
    assert "progress     0.5, at 20" in pgqueue("jobs", "show", str(halfway), dsn=dsn).stdout


def test_show_as_json_has_the_progress(halfway: int, queue: PgQueue, dsn: str) -> None:
    shown = printed(pgqueue("jobs", "show", str(halfway), "--json", dsn=dsn))
    progress = queue.progress(halfway)
    assert progress is not None
    assert datetime.fromisoformat(shown["progress"].pop("at")) == progress.at
    assert shown["progress"] == {"done": 1200, "total": 4800, "message": 'it\'s \x1b[31m"half"'}
    ask(queue, "delete from pgqueue.notes")
    assert printed(pgqueue("jobs", "show", str(halfway), "--json", dsn=dsn))["progress"] is None


def test_watch_prints_each_change_until_the_job_has_ended(
    queue: PgQueue, halfway: int, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pause of the command is a moment for the job to get on."""
    happens = steps(
        lambda: None,
        lambda: report(queue, halfway, done=4800, total=4800, message=None),
        lambda: ask(queue, GIVE_BACK),
        lambda: queue.cancel(halfway),
    )
    monkeypatch.setattr(verbs, "time", SimpleNamespace(sleep=happens))
    shown = pgqueue("jobs", "show", str(halfway), "--watch", dsn=dsn).stdout.splitlines()
    assert shown[:3] == [
        'running  1,200 of 4,800 (25 %): it\'s \\x1b[31m"half"',
        "running  4,800 of 4,800 (100 %)",
        "ready  4,800 of 4,800 (100 %)",
    ]
    assert next(filter(None, shown[3:])).split() == ["id", str(halfway)]
    assert any(line.split() == ["state", "cancelled"] for line in shown)


def test_watch_is_not_for_programs(halfway: int, dsn: str) -> None:
    refused = pgqueue("jobs", "show", str(halfway), "--watch", "--json", dsn=dsn)
    assert refused.exit_code == 2
    assert "give one of them" in refused.stderr


def test_a_terminal_gets_a_bar(halfway: int, queue: PgQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words and the share of a bar, as rich draws it into a terminal of 80 columns."""
    drawn = io.StringIO()
    monkeypatch.setattr(verbs, "_console", lambda: Console(file=drawn, force_terminal=True, width=80))
    happens = steps(lambda: ask(queue, GIVE_BACK), lambda: queue.cancel(halfway))
    monkeypatch.setattr(verbs, "time", SimpleNamespace(sleep=happens))
    assert verbs.watch(queue, halfway).state is JobState.CANCELLED
    assert "1,200 of 4,800 (25 %)" in drawn.getvalue()
    assert "━" in drawn.getvalue()
    assert '[31m"half' not in drawn.getvalue().replace("\\x1b[31m", "")


def test_the_stack_of_a_running_job_is_asked_of_its_worker(
    queue: PgQueue, shelf: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((worker,),) = ask(
        queue,
        "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, minimum, slots, version) "
        "values (gen_random_uuid(), now() + '1 h'::interval, 'web', 42, 5, 5, 5, '0.1') returning id",
    )
    ask(queue, "update pgqueue.jobs set status = 'running', worker_id = %s where id = 1", worker)
    words = ("jobs", "stack", "1", "--timeout", "30s", "--by", "ann")
    silent = pgqueue(*words[:3], "--timeout", "0.01s", dsn=dsn)
    assert (silent.exit_code, silent.stdout) == (1, "")
    assert "web:42 has not answered" in silent.stderr

    said = "shop.py:31 in send\n    await \x1b[31mgate"
    happens = steps(*[lambda: shelf.database.run(stacks.answer(worker, {1: said}))] * 2)
    monkeypatch.setattr("pgqueue.app.workers.time", SimpleNamespace(sleep=happens, monotonic=time.monotonic))
    shown = pgqueue(*words, dsn=dsn)
    assert shown.stdout == "shop.py:31 in send\n    await \\x1b[31mgate\n"
    assert printed(pgqueue(*words, "--json", dsn=dsn))["text"] == said
    assert [one.by for one in queue.insight.audit(limit=2)] == ["ann", "ann"]

    refused = pgqueue("jobs", "stack", "2", dsn=dsn)
    assert (refused.exit_code, "job 2 is scheduled" in refused.stderr) == (2, True)


@pytest.fixture
def graves(queue: PgQueue, connection: psycopg.Connection[Any]) -> PgQueue:
    """A queue with three dead jobs: 1 and 2 of sell, 3 of buy in the queue quick; 1 has been dead for eight days."""
    sell = queue.task(name="sell", max_attempts=1)(lambda: None)
    buy = queue.task(name="buy", queue="quick", max_attempts=1)(lambda: None)
    sell.using(unique_key="one").enqueue()
    sell.enqueue()
    buy.enqueue()
    with queue.take(3) as jobs:
        for job in jobs:
            job.fail("no stock")
    connection.execute("update pgqueue.dead_jobs set died_at = now() - interval '8 days' where id = 1")
    connection.commit()
    return queue


def dead(queue: PgQueue) -> list[int]:
    return [job.id for job in queue.insight.search(state=JobState.DEAD).jobs]


@pytest.mark.usefixtures("graves")
def test_list_shows_dead_jobs_with_their_reason_and_error(dsn: str) -> None:
    rows = cells(pgqueue("dead", "list", dsn=dsn))
    assert [row[:4] for row in rows] == [
        ["3", "quick", "buy", "1/1"],
        ["2", "default", "sell", "1/1"],
        ["1", "default", "sell", "1/1"],
    ]
    assert rows[0][-4:] == ["exhausted", "pgqueue.errors.JobError:", "no", "stock"]


@pytest.mark.parametrize(
    ("words", "ids"),
    [([], [3, 2, 1]), (["--task", "sell"], [2, 1]), (["--queue", "quick"], [3]), (["--before", "2"], [1])],
)
@pytest.mark.usefixtures("graves")
def test_list_filters_and_prints_json(words: list[str], ids: list[int], dsn: str) -> None:
    assert [job["id"] for job in printed(pgqueue("dead", "list", "--json", *words, dsn=dsn))] == ids


SELECTIONS = [
    (["2", "3"], [1]),
    (["--task", "sell"], [3]),
    (["--queue", "quick"], [2, 1]),
    (["--older-than", "7d"], [3, 2]),
    (["--task", "buy", "--older-than", "7d"], [3, 2, 1]),
    (["--error", "JobError", "--queue", "default"], [3]),
    (["--error", "OSError"], [3, 2, 1]),
    (["--all"], []),
]


@pytest.mark.parametrize(("words", "left"), SELECTIONS)
def test_retry_returns_the_chosen_jobs_to_their_lines(
    words: list[str], left: list[int], graves: PgQueue, dsn: str
) -> None:
    assert pgqueue("dead", "retry", *words, dsn=dsn).exit_code == 0
    assert dead(graves) == left
    assert len(graves.insight.search(state=JobState.READY).jobs) == 3 - len(left)


@pytest.mark.parametrize(("words", "left"), SELECTIONS)
def test_purge_forgets_the_chosen_jobs(words: list[str], left: list[int], graves: PgQueue, dsn: str) -> None:
    assert pgqueue("dead", "purge", "--yes", *words, dsn=dsn).exit_code == 0
    assert [job.id for job in graves.insight.search().jobs] == left


@pytest.mark.parametrize("verb", ["retry", "purge"])
@pytest.mark.parametrize(
    "words", [[], ["1", "--all"], ["1", "--task", "sell"], ["--all", "--queue", "quick"]]
)
def test_without_a_clear_choice_nothing_is_done(
    verb: str, words: list[str], graves: PgQueue, dsn: str
) -> None:
    assert pgqueue("dead", verb, *words, dsn=dsn, answer="y\n").exit_code == 2
    assert dead(graves) == [3, 2, 1]


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_purge_asks_first_and_takes_silence_for_no(answer: str, graves: PgQueue, dsn: str) -> None:
    result = pgqueue("dead", "purge", "--task", "sell", dsn=dsn, answer=answer)
    assert result.exit_code == 1
    assert "this will delete 2 dead jobs for ever" in result.stderr
    assert dead(graves) == [3, 2, 1]


def test_purge_goes_on_when_told_yes(graves: PgQueue, dsn: str) -> None:
    result = pgqueue("dead", "purge", "--older-than", "7d", dsn=dsn, answer="y\n")
    assert (result.exit_code, result.stdout) == (0, "1 deleted: the dead jobs dead for longer than 7 days\n")
    assert dead(graves) == [3, 2]


def test_retry_touches_no_job_that_is_not_dead(graves: PgQueue, dsn: str) -> None:
    graves.retry(2)
    result = pgqueue("dead", "retry", "2", "3", "99", dsn=dsn)
    assert (result.exit_code, result.stdout) == (1, "3: ready\n")
    assert result.stderr == "2: not changed: ready\n99: there is no record of it\n"


REMEDIES = (
    "cancel that job, or wait until it has ended, and retry again; or retry without the key: "
    "pgqueue dead retry --without-key\n"
)


def test_retry_names_the_live_job_that_keeps_a_job_dead_and_what_can_be_done(
    graves: PgQueue, dsn: str
) -> None:
    graves.tasks["sell"].using(unique_key="one").enqueue()
    result = pgqueue("dead", "retry", "1", dsn=dsn)
    assert (result.exit_code, result.stderr) == (
        1,
        f"1: stays dead: live job 4 has its unique key 'one'; {REMEDIES}",
    )


def test_retry_by_filter_names_those_that_stay_and_succeeds_if_any_went(graves: PgQueue, dsn: str) -> None:
    graves.tasks["sell"].using(unique_key="one").enqueue()
    result = pgqueue("dead", "retry", "--task", "sell", dsn=dsn)
    assert (result.exit_code, result.stdout) == (0, "1 ready again: the dead jobs of task sell\n")
    assert result.stderr == (
        "1: live job 4 has its unique key\n"
        f"1 skipped, such as 1: live jobs have their unique keys: {REMEDIES}"
    )
    again = pgqueue("dead", "retry", "--task", "sell", dsn=dsn)
    assert (again.exit_code, again.stdout) == (1, "0 ready again: the dead jobs of task sell\n")


def test_retry_without_the_key_makes_the_job_ready_beside_the_live_one(graves: PgQueue, dsn: str) -> None:
    graves.tasks["sell"].using(unique_key="one").enqueue()
    assert pgqueue("dead", "retry", "--without-key", "1", dsn=dsn).stdout == "1: ready\n"
    assert graves.job(1).unique_key is None


def test_a_filter_that_no_dead_job_matches_is_no_failure(graves: PgQueue, dsn: str) -> None:
    result = pgqueue("dead", "retry", "--task", "nothing", dsn=dsn)
    assert (result.exit_code, result.stdout) == (0, "0 ready again: the dead jobs of task nothing\n")
    assert dead(graves) == [3, 2, 1]


@pytest.mark.usefixtures("graves")
def test_a_long_retry_tells_how_far_it_is(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", 1)
    monkeypatch.setattr(bulk_command, "TELL_EVERY", 0.0)
    result = pgqueue("dead", "retry", "--all", dsn=dsn)
    assert result.stdout == "3 ready again: all dead jobs\n"
    assert result.stderr == "".join(f"{count} ready again so far\n" for count in (1, 2, 3, 3))


@pytest.mark.usefixtures("graves")
def test_purge_of_an_id_that_is_not_dead_is_no_success(dsn: str) -> None:
    assert pgqueue("dead", "purge", "--yes", "1", "99", dsn=dsn).exit_code == 1


@pytest.mark.usefixtures("graves")
def test_show_writes_a_test_of_a_dead_job(dsn: str) -> None:
    assert "no stock" in pgqueue("jobs", "show", "2", dsn=dsn).output
    written = pgqueue("jobs", "show", "2", "--pytest", dsn=dsn).output
    assert "def test_job_2_of_sell(pgqueue_app):" in written
    assert "no stock" in written
    both = pgqueue("jobs", "show", "2", "--pytest", "--json", dsn=dsn)
    assert (both.exit_code, "not both" in both.output) == (2, True)


def test_reschedule_gives_jobs_another_time_and_the_audit_says_so(shelf: PgQueue, dsn: str) -> None:
    done = pgqueue(
        "jobs", "reschedule", "2099-01-01T00:00Z", "1", "2", "4", "--by", "ann", "--why", "late", dsn=dsn
    )
    assert done.exit_code == 1
    assert "due 2099-01-01" in done.stdout or "due 2098-12-31" in done.stdout
    assert {shelf.job(one).run_at.year for one in (1, 2)} <= {2098, 2099}
    assert [(one.by, one.action, one.target) for one in shelf.insight.audit()] == [
        ("ann", "reschedule", "job 2"),
        ("ann", "reschedule", "job 1"),
    ]
    assert pgqueue("jobs", "reschedule", "2099-01-01", "1", dsn=dsn).exit_code == 2


def test_copy_enqueues_jobs_like_former_ones(shelf: PgQueue, dsn: str) -> None:
    done = pgqueue("jobs", "copy", "3", "1", "99", "--by", "ann", dsn=dsn)
    assert done.exit_code == 1
    first, second = sorted(shelf.insight.search(state="ready").jobs, key=lambda one: one.id)[-2:]
    assert f"copied: job {first.id}" in done.stdout
    assert (first.args, first.priority, first.meta) == ({"book": "is dead"}, 5, {"pgqueue_copy_of": 3})
    assert (second.queue, second.unique_key) == ("quick", None)
    assert [one.by for one in shelf.insight.audit()] == ["ann", "ann"]
