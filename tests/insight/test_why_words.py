"""What is said of each cause for which a job does not run, without a database: the facts are given."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pgqueue.values.insight.why import Why, explain, retold
from pgqueue.values.insight.why_facts import HeldPlace, LimitFacts, NodeFacts, WhyFacts, opens_in
from pgqueue.values.workers.lease import duration_text

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)
SERVED = {"alive": 2, "serving": 2, "slots": 40, "knowing": 2}
BLOCKED: dict[str, Any] = {
    "blocked_host": "box",
    "blocked_pid": 42,
    "blocked_for": 180.0,
    "blocked_task": "report",
    "blocked_job": 7,
    "blocked_where": "jobs.py:3 in report",
}


def why(state: str = "ready", **given: Any) -> Why:
    facts = {
        "queue": "mail",
        "task": "send",
        "now": NOON,
        "attempts": 0,
        "max_attempts": 3,
        **SERVED,
        **given,
    }
    return explain(5, WhyFacts(state, **facts))


def said(state: str = "ready", **given: Any) -> tuple[str, str]:
    """The reason and the last part of the sentence."""
    found = why(state, **given)
    return found.reason, found.sentence.partition("; ")[2]


def limit(**given: Any) -> dict[str, Any]:
    return {"in_lane": True, "limits": [LimitFacts("name:api", "name:api", **given)]}


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.25, "0.2 s"), (150, "2.5 min"), (432_000, "5 days"), (97_632_000, "1,130 days")]
)
def test_a_length_of_time_is_written_without_an_exponent(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words


@pytest.mark.parametrize(
    ("heard", "left", "silent"), [(12.0, 18.0, True), (10.5, 19.5, False), (30.0, 30.0, True)]
)
def test_a_running_job_says_when_its_worker_was_last_heard_of_if_it_missed_a_heartbeat(
    heard: float, left: float, *, silent: bool
) -> None:
    found = why("running", host="box", pid=42, since=60.0, lease_left=left, heard_for=heard).sentence
    said = (
        f"; its worker was last heard of {duration_text(heard)} ago: if it stays silent, "
        f"another worker takes the job over in {duration_text(left)}"
    )
    assert found.endswith(said if silent else "process 42")


def test_a_full_limit_names_the_jobs_that_hold_its_places_and_their_workers() -> None:
    held = [HeldPlace(1, "box:42"), HeldPlace(2)]
    assert said("blocked", **limit(most=2, running=2, held_by=held)) == (
        "limit full",
        "limit 'name:api' is full, 2 of 2: held by jobs 1 (on box:42) and 2 (lost, or it waits for its retry)",
    )
    many = [HeldPlace(number, "b:1") for number in range(6)]
    told = said("blocked", **limit(most=1_200, running=1_201, held_by=many))[1]
    assert told.endswith(
        " is full, 1,201 of 1,200: held by jobs 0 (on b:1), 1 (on b:1), 2 (on b:1), 3 (on b:1), 4 (on b:1) and more"
    )


def test_a_limit_of_0_and_one_that_no_worker_has_stored_say_what_to_do() -> None:
    assert said("blocked", **limit(most=0)) == (
        "limit full",
        "limit 'name:api' is 0, so no job of it starts: raise it with `pgqueue limits set`",
    )
    assert said("blocked", **limit()) == (
        "limit unknown",
        "no numbers of limit 'name:api' are stored: a worker whose code has it stores them as it claims",
    )


def test_a_rate_says_at_which_instant_its_window_opens() -> None:
    assert said("blocked", **limit(every=1, burst=1, opens_in=90.0)) == (
        "rate",
        "rate 'name:api' opens in 90 s, at 2031-05-04 12:01:30 UTC",
    )
    later = said("blocked", **limit(every=1, burst=1, opens_in=90.0), ahead_in_lane=3)[1]
    assert later.endswith("12:01:30 UTC, for 3 jobs of its lane first")
    assert said("blocked", **limit(every=1, burst=1, opens_in=0.0))[0] == "waiting"


@pytest.mark.parametrize(
    ("tat", "cost", "seconds"), [(0, 1, 0), (70, 1, 10), (70, 2, 70), (120, 9, 120), (10**9, 1, 60.1)]
)
def test_a_rate_opens_when_a_claim_would_start_the_job(tat: int, cost: int, seconds: float) -> None:
    micros = int(NOON.timestamp()) * 1_000_000
    assert opens_in((60_000_000, 2), micros + tat * 1_000_000, NOON, cost) == seconds


@pytest.mark.parametrize(
    ("own", "others", "words"),
    [
        (3, 0, "it is behind 3 jobs of its key"),
        (1, 1_000, "it is behind 1 job of its key, and in turn with 1,000 or more jobs of other keys"),
        (0, 7, "it is next in turn with 7 jobs of other keys"),
    ],
)
def test_a_fair_share_says_how_many_jobs_of_its_and_of_other_keys_wait(
    own: int, others: int, words: str
) -> None:
    assert said("blocked", in_lane=True, ahead_in_lane=own, in_other_lanes=others) == ("turn", words)


def node(state: str, **given: Any) -> dict[str, Any]:
    values = {"id": 8, "label": "charge", "kind": "job", "state": state, "rule": "wait", "job": 12, **given}
    return {"flow": 3, "nodes": [NodeFacts(**values)]}


def test_a_job_that_waits_for_a_dead_node_names_it_and_its_last_error() -> None:
    dead = node("failed", is_dead=True, dead_reason="exhausted", error="OSError", message="no\nmore")
    assert why("blocked", **dead).sentence == (
        "it waits for 'charge' (job 12), which is dead (exhausted): OSError: no; retry it with `pgqueue dead retry 12`"
    )
    assert why("blocked", **dead).reason == "dead node"
    group = why("blocked", **node("failed", kind="group", is_dead=True)).sentence
    assert group.startswith("it waits for 'charge', which has failed, in which job 12 is dead; retry it")
    gone = why("blocked", **node("failed")).sentence
    assert (
        gone
        == "it waits for 'charge' (job 12), which has failed; the dead job has been deleted; cancel the flow"
    )


def test_a_job_that_waits_for_other_nodes_names_them_and_where_they_stand() -> None:
    assert why("blocked", **node("released", job_state="ready")).sentence == (
        "it is blocked, and waits for 'charge' (job 12, ready), of flow 3"
    )
    assert why("blocked", flow=3).sentence == "it is blocked, and waits for the start of its group, of flow 3"
    assert why("blocked", flow=3, flow_behind=2).sentence == (
        "it is blocked: flow 3 waits for its turn, behind flow 2"
    )


def test_a_crash_suspect_says_that_it_is_to_be_quarantined() -> None:
    assert why(suspect=True, crashes=2).sentence.endswith(
        "; 2 workers died with it: after as many deaths as its task's crashes= says (by default 3) it runs in quarantine"
    )
    assert "; a worker died with it: " in why(suspect=True, crashes=1).sentence
    assert "quarantine" not in why("dead", suspect=True).sentence


def test_workers_without_a_free_slot_say_so_and_which_jobs_have_them() -> None:
    assert said(busy=2, running=[1, 2, 3]) == (
        "no free slot",
        "no slot is free: all are taken at the 2 workers that serve queue 'mail' and may know its task, by jobs 1, 2 and 3",
    )
    assert said(busy=1, knowing=1)[1].endswith(
        "at the 1 worker that serves queue 'mail' and may know its task"
    )
    assert said(busy=1)[0] == "waiting"
    assert said(busy=1, not_looking=1)[0] == "no free slot"


def test_workers_that_stop_or_are_quiet_are_named_where_no_other_serves_the_queue() -> None:
    assert said(serving=0, knowing=0, quiet=1, stopping=2) == (
        "no worker",
        "of queue 'mail' 1 live worker is quiet (`pgqueue workers resume` ends that) and 2 live workers stop, and no other serves it",
    )
    assert said(serving=0, knowing=0, stopping=1)[1].startswith("of queue 'mail' 1 live worker stops, and")


def test_workers_that_are_blocked_and_others_that_do_not_look_are_one_cause() -> None:
    assert said(blocked_workers=1, not_looking=1, **BLOCKED) == (
        "worker unresponsive",
        (
            "2 workers serve queue 'mail', and none claims jobs now: the event loop of box, process 42, has been blocked "
            "for 3 min by task report (job 7) at jobs.py:3 in report; 1 of them did not look for jobs in time"
        ),
    )
    assert said(blocked_workers=1, **BLOCKED)[0] == "waiting"


def test_of_many_jobs_ahead_an_estimate_is_marked() -> None:
    assert ", behind 12,345 ready jobs; " in why(ahead=12_345).sentence
    assert ", behind about 12,345 ready jobs; " in why(ahead=12_345, ahead_estimated=True).sentence


def test_the_sentence_names_the_first_cause_and_the_evidence_all() -> None:
    found = why(paused=True, paused_for=60.0, alive=0, serving=0, knowing=0, due_in=-5.0)
    assert found.sentence == (
        "it is ready, and has been due for 5 s; "
        "queue 'mail' has been paused for 60 s, since 2031-05-04 11:59:00 UTC: run `pgqueue queues resume mail`"
    )
    assert (found.reason, found.evidence["causes"]) == ("paused", ["paused", "no worker"])
    signal = why("blocked", waits_for=["timer:x"], knowing=1, not_looking=1)
    assert signal.sentence == "it is blocked, and waits for timer 'x'"
    assert signal.evidence["causes"] == ["blocked", "no worker"]
    full = why("blocked", **limit(most=1, running=1), alive=0, ahead_in_lane=2)
    assert full.evidence["causes"] == ["no worker", "limit full", "turn"]


def test_a_dead_job_says_since_when_and_with_which_error() -> None:
    found = why(
        "dead", reason="exhausted", since=60.0, attempts=3, last_error="OSError", last_message=" no \n"
    )
    assert found.sentence == (
        "it has been dead (exhausted) for 60 s, since 2031-05-04 11:59:00 UTC, "
        "after 3 of 3 attempts failed, the last with OSError: no; `pgqueue dead retry 5` makes it ready again"
    )


@pytest.mark.parametrize(
    ("alive", "words"),
    [
        (1, "the only live worker does not serve queue 'mial'"),
        (3, "none of the 3 live workers serves queue 'mial'"),
    ],
)
def test_a_queue_that_no_worker_serves_says_what_to_do(alive: int, words: str) -> None:
    found = said(queue="mial", alive=alive, serving=0, knowing=0)
    todo = "start one that serves it (`pgqueue worker --queues mial`), or enqueue to another queue"
    assert found == ("no worker", f"{words}: {todo}")


def test_hostile_names_and_times_break_no_sentence() -> None:
    hostile = "x'; rm -rf /\n\x1b[31m\u202e"
    found = why(queue=hostile, paused=True, paused_for=-1.0, due_in=-1e18, last_message="\n\n" * 9)
    assert "resume 'x'\"'\"'; rm -rf /" in found.sentence
    assert why("scheduled", due_in=1e18).sentence.startswith(
        "it is due in 11,574,074,074,074 days, at 9999-12-31 23:59:59 UTC;"
    )
    told = why("blocked", **limit(most=1, running=1, held_by=[])).sentence
    assert told.endswith("is full, 1 of 1")
    long = why(attempts=1, last_error="E", last_message="y" * 10_000).sentence
    assert "E: " + "y" * 199 + "…" in long


def test_a_sentence_is_told_again_without_what_is_hidden() -> None:
    found = why("blocked", **node("failed", is_dead=True, error="E", message="token abcdef"))
    hidden = retold(
        found, lambda told: {**told, "nodes": [{**one, "message": "token •••"} for one in told["nodes"]]}
    )
    assert "E: token •••;" in hidden.sentence
    assert (hidden.reason, hidden.evidence["causes"]) == (found.reason, found.evidence["causes"])
    nothing = explain(5, None)
    assert retold(nothing, lambda _: {}) == nothing
