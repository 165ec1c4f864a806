"""``pgqueue chaos``: every fault on servers of its own, a user's database, and a verdict that sees what is broken.

The proxy of ``pgqueue chaos`` passes bytes on, and leaves no connection open behind it.
"""

import gc
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from click.testing import CliRunner
from programs import Program

from pgqueue.chaos import faults, judge, run
from pgqueue.chaos.history.events import (
    Claimed,
    Ended,
    Enqueued,
    Event,
    Reclaimed,
    Recorded,
    Started,
    Stopped,
)
from pgqueue.chaos.kinds import enqueued, name_of, step_of
from pgqueue.chaos.log import WORKER, LogLine, path_of
from pgqueue.chaos.proxy import LOCAL, Address, Proxy
from pgqueue.chaos.run import RunOutcome, complaints
from pgqueue.chaos.stage import ChaosStage, Fleet, ProcessEnd
from pgqueue.cli.main import main
from pgqueue.errors import ConnectionFailed

CHEAP = "kill,freeze,stop,cut,refuse,delay,silence,half,backends,row-locks,table-lock,snapshot,timeouts,vacuum-full,reindex"
OF_SERVERS = "connections,restart-fast,pooler,clock,threads"
"""`make chaos` has all faults, also servers that crash."""
JOB = name_of("plain", 9)


@pytest.mark.timeout(600)
def test_every_promise_holds_under_faults_and_the_last_line_says_so() -> None:
    """Two minutes that mostly wait: few jobs, and quiet between two faults."""
    words = [
        "--faults",
        f"{CHEAP},{OF_SERVERS}",
        "--rounds",
        "1",
        "--pause",
        "4",
        "--rate",
        "20",
        "--seed",
        "7",
        "--json",
    ]
    pipe = subprocess.PIPE
    with Program(["-m", "pgqueue", "chaos", *words], stdout=pipe, stderr=pipe) as process:
        told, lines = process.communicate()
    found = json.loads(told)
    assert (found["lost"], found["double_effects"], found["broken"]) == (0, 0, []), lines
    assert process.returncode == 0, lines
    assert lines.splitlines()[-1].startswith("KEPT: "), lines
    assert found["recoveries"].keys() >= set(f"{CHEAP},{OF_SERVERS}".split(",")) - found["left_out"].keys()


def test_in_a_users_database_it_leaves_out_what_reaches_others_and_says_what_is_broken(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One effect is doubled, one record deleted, one order removed before the end is judged."""

    def sabotaged(stage: ChaosStage, outcome: RunOutcome) -> None:
        with stage.connection() as connection:
            for statement in SABOTAGE:
                assert connection.execute(statement.encode()).rowcount == 1
        honest(stage, outcome)

    honest = run.account
    monkeypatch.setattr(run, "account", sabotaged)
    words = ["--dsn", empty_dsn, "chaos", "--faults", "cut,restart-fast", "--seconds", "1", "--seed", "1"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1, done.output
    assert "left out: restart-fast: the server is yours" in done.output
    last = done.stdout.splitlines()[-1]
    assert last.startswith("BROKEN: 3 complaints; "), done.output
    assert last.endswith(" 1 lost, 1 double effects"), done.output
    with psycopg.connect(empty_dsn) as connection:
        assert connection.execute("select to_regnamespace('pgqueue_chaos')").fetchone() == (None,)


SABOTAGE = (
    """insert into pgqueue_chaos.effects select * from pgqueue_chaos.effects where job like 'written/%' limit 1""",
    """delete from pgqueue_chaos.job_history where id = (
           select id from pgqueue_chaos.job_history where task = 'plain'
           and split_part(args->>'name', '/', 2)::bigint not in (select number from pgqueue_chaos.orders) limit 1)""",
    """delete from pgqueue_chaos.orders where number = (
           select split_part(args->>'name', '/', 2)::bigint from pgqueue_chaos.job_history where task = 'written' limit 1)""",
)


def history(*events: Event, process: int = 1) -> list[LogLine]:
    return [LogLine(event, process) for event in events]


def claimed(at: float, worker: str, attempt: int = 1) -> list[Event]:
    return [
        Claimed(at=at, job=JOB, worker=worker, attempt=attempt),
        Started(at=at + 0.1, job=JOB, worker=worker, attempt=attempt),
    ]


DONE: list[Event] = [
    Stopped(at=8.0, job=JOB, worker="b", attempt=2),
    Ended(at=8.1, job=JOB, worker="b", attempt=2, state="succeeded"),
]
LOOKED: list[Event] = [
    Enqueued(at=0.0, job=JOB),
    Recorded(at=9.0, job=JOB, state="succeeded", attempts=2, most=25),
]


def judged(lines: list[LogLine], **given: Any) -> list[str]:
    looked = given.pop("looked", LOOKED)
    return [one.sentence for one in judge.judge(lines, looked, {1: JOB}, left={}, **given).violations]


def test_a_job_that_is_claimed_while_an_attempt_of_it_runs_is_a_broken_promise() -> None:
    both = history(*claimed(1.0, "a"), *claimed(5.0, "b", 2), *DONE)
    assert judged(both) == [f"job {JOB} was claimed by worker b while worker a held it"]


def test_a_killed_workers_job_may_be_claimed_again() -> None:
    lines = [*history(*claimed(1.0, "a"), process=7), *history(*claimed(5.0, "b", 2), *DONE)]
    found = judge.judge(lines, LOOKED, {}, left={7: ProcessEnd(4.0, returned=False)})
    assert not found.violations


def test_a_claim_that_a_crash_forgot_is_no_broken_promise() -> None:
    """The attempt still runs when its job is claimed again; only a crash between the two claims excuses that."""
    again = [*claimed(5.0, "b", 2), *DONE]
    soon, crash = history(*claimed(3.5, "a", 2), *again), (4.0, 4.5)
    assert not judged(soon, crashes=[crash])
    assert judged(soon, crashes=[(6.0, 6.5)], faults=[(3.0, 7.0)])
    assert judged(soon, crashes=[(5.1, 5.5)], faults=[(5.1, 7.0)])
    assert judged(history(*claimed(2.5, "a", 2), *again), crashes=[crash], faults=[crash])


def test_a_verdict_whose_answer_a_fault_kept_back_is_no_broken_promise() -> None:
    """The attempt has stopped, or never started, before its job is claimed again, and a fault lies between."""
    again = [*claimed(5.0, "b", 2), *DONE]
    claim, start = claimed(1.0, "a")
    stopped = history(claim, start, Stopped(at=4.0, job=JOB, worker="a", attempt=1), *again)
    for lines in (stopped, history(claim, *again)):
        assert not judged(lines, faults=[(2.0, 3.0)])
        assert judged(lines, faults=[(5.5, 6.0)])
        assert judged(lines)
    late = history(claim, start, Stopped(at=5.5, job=JOB, worker="a", attempt=1), *again)
    assert judged(late, faults=[(2.0, 3.0)])


def test_equal_attempts_of_one_worker_are_told_apart_by_their_fences() -> None:
    """A crash forgot the claim, and the same worker has claimed the job again as the same attempt."""
    first = [msgspec.structs.replace(one, fence=1) for one in claimed(3.5, "b", 2)]
    second = [msgspec.structs.replace(one, fence=2) for one in [*claimed(5.0, "b", 2), *DONE]]
    assert not judged(history(*first, *second), crashes=[(4.0, 4.5)])
    refused = Ended(at=6.0, job=JOB, worker="b", attempt=2, state="succeeded", fence=1)
    assert judged(history(*first, refused, *second), crashes=[(4.0, 4.5)])


def test_a_verdict_of_which_the_line_comes_late_is_taken_for_recorded_when_its_task_had_stopped() -> None:
    first = [*claimed(1.0, "a"), Stopped(at=4.9, job=JOB, worker="a", attempt=1)]
    told = Ended(at=5.4, job=JOB, worker="a", attempt=1, state="scheduled")
    assert not judged(history(*first, told, *claimed(5.0, "b", 2), *DONE))
    assert judged(history(*first, told, *claimed(4.5, "b", 2), *DONE))
    ended = msgspec.structs.replace(told, state="succeeded")
    assert judged(history(*first, ended, *claimed(5.5, "b", 2), *DONE))


def test_a_claim_of_which_the_answer_came_after_its_takeover_is_in_its_place() -> None:
    """The worker was cut off while it claimed. Without the takeover two workers hold the job."""
    late = Claimed(at=5.5, job=JOB, worker="a", attempt=1, fence=3)
    refused = Ended(at=5.6, job=JOB, worker="a", attempt=1, state=None, fence=3)
    taken = Reclaimed(at=4.0, job=1, worker="a", attempt=1, state="scheduled", fence=3)
    both = history(*claimed(5.0, "b", 2), late, refused, *DONE)
    assert not judged([*both, *history(taken)])
    for other in ({"fence": 2}, {"worker": "b"}):
        assert judged([*both, *history(msgspec.structs.replace(taken, **other))])


@pytest.mark.parametrize(("at", "broken"), [(4.0, 0), (7.0, 1)])
def test_a_worker_that_stops_leaves_no_job_behind_unless_it_lost_its_lease_before(
    at: float, broken: int
) -> None:
    """One that lost its lease goes on with a new id, and what others have taken over before was never its to return."""
    lost = Reclaimed(at=at, job=1, worker="a", attempt=1, state="scheduled")
    lines = [*history(*claimed(1.0, "a"), process=7), *history(lost, *claimed(7.5, "b", 2), *DONE)]
    found = judge.judge(lines, LOOKED, {1: JOB}, left={7: ProcessEnd(6.0, returned=True)}).violations
    assert [one.promise for one in found] == [6] * broken


def test_a_step_that_runs_again_after_the_next_one_has_begun_is_a_broken_promise() -> None:
    def step(part: str, attempt: int) -> Event:
        return Started(at=1.0 + attempt, job=step_of("stepped/9/only", part), worker="a", attempt=attempt)

    assert not judged(history(step("first", 1), step("first", 2), step("second", 2)), looked=[])
    (found,) = judged(history(step("first", 1), step("second", 1), step("first", 2)), looked=[])
    assert found.startswith("job stepped/9/only ran its step first again in attempt 2")


def test_what_an_asynchronous_failover_lost_is_counted_and_not_called_kept() -> None:
    """The order's other jobs are not judged either; a job of another time is."""
    lost = enqueued("chained", 10)
    kept = Enqueued(at=9.0, job=JOB)
    lines = history(*(Enqueued(at=2.0, job=one.job) for one in lost), kept)
    found = judge.judge(lines, [], {}, left={}, forgotten=[(1.0, 3.0)])
    assert (found.lost_by_setting, found.not_judged) == (3, 3)
    assert [one.sentence for one in found.violations] == [f"job {JOB} is lost: no table has it"]


def test_a_worker_that_ends_by_itself_is_told_of_unless_it_never_came_to_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may be away while a worker starts; then another is started."""
    fleet = Fleet("", tmp_path, [])
    hired: list[int] = []
    monkeypatch.setattr(fleet, "hire", lambda: hired.append(1))
    ended = [fleet.run(["-c", "raise SystemExit(2)"]) for _ in range(2)]
    fleet.workers = list(ended)
    for one in ended:
        one.end()
    path_of(tmp_path, WORKER, ended[0].pid).touch()
    fleet.replace_ended()
    assert (len(hired), fleet.workers, len(fleet.surprises)) == (2, [], 1)


def test_a_fault_after_which_work_does_not_go_on_is_a_broken_promise() -> None:
    outcome = RunOutcome(happened=[run.FaultRun("cut", 1.0, None)])
    assert complaints(outcome) == ["promise 6: after cut work did not go on within 60 s"]


def test_a_fault_waits_for_its_connection_while_workers_have_all(dsn: str) -> None:
    class Full(ChaosStage):
        refusals = 2

        def __init__(self) -> None: ...

        @contextmanager
        def connection(self) -> Iterator[psycopg.Connection[Any]]:
            if self.refusals:
                self.refusals -= 1
                raise ConnectionFailed("remaining connection slots are reserved")
            with psycopg.connect(dsn) as connection:
                yield connection

    stage = Full()
    with stage.connection_of_a_fault() as connection:
        assert (connection.closed, stage.refusals) == (False, 0)


def test_an_unknown_fault_is_refused_with_the_near_one_and_the_list_tells_what_each_does() -> None:
    refused = CliRunner().invoke(main, ["chaos", "--faults", "kil"])
    assert (refused.exit_code, "kill" in refused.output) == (2, True)
    listed = CliRunner().invoke(main, ["chaos", "--list"])
    assert [line.split()[0] for line in listed.output.splitlines()[1:]] == list(faults.FAULTS)


MANY = 40


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A server that accepts connections when it is told to."""
    with socket.create_server((LOCAL, 0), backlog=MANY) as server:
        yield server


def _client(proxy: Proxy) -> socket.socket:
    (port,) = proxy.ports
    return socket.create_connection((LOCAL, port), timeout=10)


def _has_ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def _address(server: socket.socket) -> Address:
    return Address(*server.getsockname())


def test_bytes_reach_the_server_and_its_answer_the_client(listening: socket.socket) -> None:
    with Proxy([_address(listening)]) as proxy, _client(proxy) as client:
        client.sendall(b"question")
        server, _ = listening.accept()
        with server:
            assert server.recv(8) == b"question"
            server.sendall(b"answer")
            assert client.recv(6) == b"answer"
            proxy.cut()
            assert server.recv(1) == b""
        assert _has_ended(client)
    assert proxy.opened == 1


@pytest.mark.filterwarnings("error")
def test_connections_that_have_just_been_opened_are_closed_with_it(listening: socket.socket) -> None:
    with Proxy([_address(listening)]) as proxy:
        clients = [_client(proxy) for _ in range(MANY)]
        proxy.cut()
    gc.collect()  # an open one would complain here
    for client in clients:
        with client:
            assert _has_ended(client)
