"""What a job of a flow knows of the nodes before it, and what it adds to the flow.

The options of a node: the same mistakes are refused, in the same words, in a flow that is built and by a running job.
"""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from flows.world import World, every_world

from pgqueue import Context, JobState, PgQueue, Task, Workflow, chain, group, result_of
from pgqueue.app.flows.handle import FlowHandle
from pgqueue.app.flows.nodes import FlowInside
from pgqueue.errors import FlowError, InvalidOption, SignalRefused
from pgqueue.values.flows.addition import Addition
from pgqueue.values.flows.flow import PORTION
from pgqueue.values.flows.results import FlowPosition, Results
from pgqueue.values.jobs.job import Claim

world = every_world
STORED = pytest.mark.parametrize("world", ["database", "transaction"], indirect=True)
"""For what memory does not answer."""


@pytest.fixture
def seen(world: World) -> list[Any]:
    """What tasks saw of the nodes before them."""

    @world.queue.task(name="look")
    def look(ctx: Context) -> dict[str, Any]:
        found = dict(ctx.results)
        world.noted.append(found)
        return found

    @world.queue.task(name="look_async")
    async def look_async(ctx: Context) -> None:
        world.noted.append((ctx.results.previous, ctx.flow.name, ctx.flow.node))

    return world.noted


def test_a_job_sees_what_the_nodes_before_it_returned(world: World, seen: list[Any]) -> None:
    look = world.queue.tasks["look"]
    flow = Workflow("shop")
    flow.add("a", world.note.call({"rows": 3}))
    flow.add("b", world.note.call("b"), after="a")
    flow.add("beside", world.note.call("beside"))
    flow.add("pages", group([world.note.call(n) for n in range(3)]), after="b")
    flow.add("inner", chain(world.note.call("x"), look.call()), after="pages")
    flow.add("end", world.queue.tasks["look_async"].call(), after="inner")
    flow.enqueue()
    world.run()
    inside, end = seen[-2:]
    assert inside == {"a": {"rows": 3}, "b": "b", "pages": [0, 1, 2], "1": "x"}
    assert end == ({"1": "x", "2": inside}, "shop", "end")


READS: dict[str, Callable[[Results, Any], object]] = {
    "by name": lambda results, _: results["made"],
    "previous": lambda results, _: results.previous,
    "all": lambda results, _: dict(results),
    "of its task": lambda results, make: results.of(make),
}


@pytest.mark.parametrize(
    ("read", "inside"),
    [(read, False) for read in READS] + [(read, True) for read in ("by name", "previous", "all")],
)
def test_a_result_that_was_not_kept_is_an_error_for_the_next_job_and_not_none(
    world: World, read: str, *, inside: bool
) -> None:
    @world.queue.task(name="make")
    def make() -> Any:
        return object()

    @world.queue.task(name="use")
    def use(ctx: Context) -> None:
        world.noted.append(READS[read](ctx.results, make))

    flow = Workflow()
    flow.add("made", group([world.note.call(1), make.call()]) if inside else make.call())
    flow.add("used", use.call(), after="made")
    handle = flow.enqueue()
    world.run()
    assert world.noted == ([1] if inside else [])
    (dead,) = world.queue.insight.search(state="dead").jobs
    assert (dead.task, dead.attempts, dead.reason) == ("use", 1, "refused")
    (error,) = dead.errors
    which = "'made', member 2" if inside else "'made'"
    assert (error.type, error.message) == (
        "pgqueue.errors.ResultNotKept",
        f"the result of node {which}, a job of task make, was not kept: queue.result(id) of that job says why",
    )
    assert "made" not in handle.results()


@STORED
def test_the_result_of_a_job_that_its_own_transaction_completed_is_such_an_error_where_one_is_announced(
    world: World,
) -> None:
    @world.queue.task(name="make")
    def make(ctx: Context) -> int:
        with ctx.transaction():
            pass
        return 1

    @world.queue.task(name="use")
    def use(ctx: Context) -> None:
        world.noted.append(ctx.results["made"])

    flow = Workflow()
    flow.add("made", make.call())
    flow.add("used", use.call(), after="made")
    flow.enqueue()
    world.run()
    (dead,) = world.queue.insight.search(state="dead").jobs
    assert (world.noted, dead.task, dead.reason) == ([], "use", "refused")


def test_a_condition_on_a_result_that_was_not_kept_is_an_error_of_the_job(world: World) -> None:
    @world.queue.task(name="make")
    def make() -> Any:
        return object()

    flow = Workflow()
    flow.add("made", make.call())
    flow.add("used", world.note.call("used"), after="made", skip_if=result_of("made") == 0)
    flow.enqueue()
    world.run()
    assert world.noted == []
    (dead,) = world.queue.insight.search(state="dead").jobs
    assert dead.errors[-1].type == "pgqueue.errors.ResultNotKept"


def test_the_result_of_a_task_is_typed_and_a_missing_name_says_what_there_is(world: World) -> None:
    @world.queue.task(name="count")
    def count() -> tuple[int, int]:
        return 3, 4

    @world.queue.task(name="use")
    def use(ctx: Context) -> None:
        world.noted.append(ctx.results.of(count))
        with pytest.raises(LookupError) as unknown:
            _ = ctx.results["cuont"]
        with pytest.raises(LookupError) as other:
            ctx.results.of(world.note)
        world.noted += [str(unknown.value), str(other.value)]
        world.noted.append(ctx.results.state("count"))

    flow = Workflow()
    flow.add("count", count.call())
    flow.add("use", use.call(), after="count")
    flow.enqueue()
    world.run()
    typed, unknown, other, state = world.noted
    assert typed == (3, 4)
    assert "did you mean 'count'" in unknown
    assert "0 nodes before this job are of task note" in other
    assert state == "succeeded"


def test_a_job_of_no_flow_has_no_results_and_no_flow(world: World) -> None:
    @world.queue.task(name="alone")
    def alone(ctx: Context) -> None:
        assert dict(ctx.results) == {}
        with pytest.raises(FlowError, match="is not part of a chain"):
            _ = ctx.flow
        world.noted.append("seen")

    alone.enqueue()
    world.run()
    assert world.noted == ["seen"]


@pytest.mark.parametrize(("rows", "ran"), [(0, ["after"]), (2, ["load", "after"])])
def test_a_condition_on_a_result_skips_a_node_and_what_follows_goes_on(
    world: World, rows: int, ran: list[str]
) -> None:
    flow = Workflow()
    flow.add("extract", world.note.call({"rows": rows, "of": ["x"]}))
    nothing = (result_of("extract")["rows"] == 0) & ~(result_of("extract")["of"][0] == "y")
    flow.add("load", world.note.call("load"), after="extract", skip_if=nothing)
    flow.add("after", world.note.call("after"), after="load")
    handle = flow.enqueue()
    world.run()
    assert world.noted[1:] == ran
    assert world.nodes["load"] == ("succeeded" if rows else "skipped")
    assert handle.jobs[1].status() is (JobState.SUCCEEDED if rows else JobState.CANCELLED)
    assert world.states == ["succeeded"]


def test_a_condition_that_makes_no_sense_fails_its_own_job_only(world: World) -> None:
    flow = Workflow()
    flow.add("extract", world.note.call(None))
    odd = world.note.using(max_attempts=1).call("odd")
    flow.add("odd", odd, after="extract", skip_if=result_of("extract")["rows"] > 3)
    flow.add("other", world.note.call("other"), after="extract")
    flow.enqueue()
    world.run()
    assert world.noted == [None, "other"]
    assert world.nodes["odd"] == "failed"
    with pytest.raises(InvalidOption, match="there is no node 'nowhere'"):
        _with_condition_on("nowhere", world).enqueue()


def _with_condition_on(name: str, world: World) -> Workflow:
    flow = Workflow()
    flow.add("a", world.note.call(1), skip_if=result_of(name) == 1)
    return flow


@STORED
def test_what_a_job_adds_runs_after_it_and_what_is_told_to_waits_for_it(world: World) -> None:
    @world.queue.task(name="plan")
    def plan(ctx: Context) -> None:
        world.noted.append("plan")
        ctx.flow.add("check", world.note.call("check"), before="publish")
        ctx.flow.add(
            "pages", group([world.note.call("p"), world.note.call("q")]), after="check", before=["publish"]
        )
        ctx.flow.add("aside", chain(world.note.call("aside"), world.note.call("last")), after=["beside"])

    flow = Workflow()
    flow.add("beside", world.note.using(priority=1).call("beside"))
    flow.add("plan", plan.call())
    flow.add("publish", world.note.call("publish"), after="plan")
    flow.enqueue()
    world.run()
    order = [what for what in world.noted if what not in {"aside", "last"}]
    assert order == ["beside", "plan", "check", "p", "q", "publish"]
    assert world.noted.index("aside") < world.noted.index("last")
    assert world.states == ["succeeded"]
    assert set(world.nodes.values()) == {"succeeded"}


@STORED
def test_a_job_that_fails_adds_nothing_and_one_that_runs_again_adds_it_once(world: World) -> None:
    @world.queue.task(name="plan", max_attempts=3)
    def plan(ctx: Context) -> None:
        ctx.flow.add("check", world.note.call("check"))
        world.noted.append(ctx.attempt)
        if ctx.attempt < 2:
            raise ValueError("again")

    chain(plan.call(), world.note.call("end")).enqueue()
    world.run()
    world.run(now=datetime.now(UTC) + timedelta(hours=1))
    assert not world.waiting
    assert Counter(world.noted) == Counter([1, 2, "check", "end"])


@STORED
def test_members_are_added_to_a_group_from_inside_and_what_follows_waits_for_them(world: World) -> None:
    @world.queue.task(name="crawl")
    def crawl(ctx: Context, depth: int) -> int:
        world.noted.append(depth)
        ctx.flow.extend(crawl.call(depth - 1) for _ in range(2 if depth else 0))
        return depth

    @world.queue.task(name="sum_up")
    def sum_up(ctx: Context) -> None:
        world.noted.append(sorted(ctx.results["members"]))

    group([crawl.call(3)], on_success=sum_up.call()).enqueue()
    world.run()
    assert world.noted[-1] == sorted(world.noted[:-1])
    assert Counter(world.noted[:-1]) == Counter({3: 1, 2: 2, 1: 4, 0: 8})
    assert world.states == ["succeeded"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"name": "end"}, "has this node already"),
        ({"name": "x", "after": "nowhere"}, "no node 'nowhere'"),
        ({"name": "x", "before": "first"}, "has started or ended"),
        ({"name": "x", "after": "last", "before": "end"}, "wait for each other"),
        ({"name": "x", "after": "end", "before": "end"}, "wait for each other"),
    ],
)
@STORED
def test_what_does_not_fit_fails_the_job_and_changes_nothing(
    world: World, how: dict[str, Any], words: str
) -> None:
    @world.queue.task(name="plan", max_attempts=1)
    def plan(ctx: Context) -> None:
        ctx.flow.add("fits", chain(world.note.call("y"), world.note.call("z")), before=["end", "end"])
        ctx.flow.add(part=world.note.call("x"), **how)

    _planned(world, plan)
    world.run()
    (died,) = world.queue.insight.search(state="dead").jobs
    assert words in died.errors[-1].message
    assert world.nodes == {"first": "succeeded", "plan": "failed", "end": "cancelled", "last": "cancelled"}
    assert world.states == ["failed"]
    assert world.noted == ["first"]
    assert len(world.queue.insight.search(limit=100).jobs) == 4


@pytest.mark.parametrize(
    ("into", "words"),
    [
        ("nowhere", "no group of this name"),
        ("plan", "no group of this name"),
        ("waiting", "group 'waiting' is waiting"),
        ("empty", "group 'empty' is succeeded"),
    ],
)
@STORED
def test_members_are_added_to_groups_that_run_only(world: World, into: str, words: str) -> None:
    @world.queue.task(name="plan", max_attempts=1)
    def plan(ctx: Context) -> None:
        ctx.flow.add("empty", group([]), after=[])
        ctx.flow.extend([world.note.call("x")], into=into)

    shape = Workflow()
    shape.add("plan", plan.call())
    shape.add("waiting", group([world.note.call("waiting")]), after="plan")
    flow = shape.enqueue()
    world.run()
    (died,) = world.queue.insight.search(state="dead").jobs
    assert words in died.errors[-1].message
    assert "empty" not in world.nodes
    assert flow.status() == "failed"


@STORED
def test_a_name_that_is_given_twice_is_waited_for_once(world: World) -> None:
    @world.queue.task(name="plan", max_attempts=1)
    def plan(ctx: Context) -> None:
        ctx.flow.add("x", world.note.call("x"), before=["end", "end"], after=["first", "plan", "first"])

    flow = _planned(world, plan)
    world.run()
    assert world.noted == ["first", "x", "end", "last"]
    assert flow.status() == "succeeded"


def _planned(world: World, plan: Task[..., Any]) -> FlowHandle:
    flow = Workflow()
    flow.add("first", world.note.using(priority=1).call("first"))
    flow.add("plan", plan.call())
    flow.add("end", world.note.call("end"), after="plan")
    flow.add("last", world.note.call("last"), after="end")
    return flow.enqueue()


@STORED
def test_what_is_added_in_the_jobs_own_transaction_commits_with_it(world: World) -> None:
    @world.queue.task(name="plan", max_attempts=1)
    def plan(ctx: Context, *, fails: bool) -> None:
        with ctx.transaction():
            ctx.flow.add("check", world.note.call("check"))
            if fails:
                raise ValueError("no")

    for fails in (True, False):
        chain(plan.call(fails=fails)).enqueue()
    world.run()
    assert world.noted == ["check"]
    assert world.states == ["failed", "succeeded"]


@pytest.mark.parametrize(
    ("world", "items"),
    [
        ("database", []),
        ("database", ["a"]),
        ("transaction", ["a"]),
        ("database", [f"item {n}" for n in range(PORTION + 1)]),
    ],
    indirect=["world"],
)
def test_a_map_runs_a_job_for_each_item_and_what_follows_waits_for_all(
    world: World, items: list[str]
) -> None:
    @world.queue.task(name="sum_up")
    def sum_up(ctx: Context) -> None:
        world.noted.append(ctx.results["each"])

    flow = Workflow()
    flow.add("list", world.note.call(items))
    each = flow.map("each", world.note.using(priority=3), over="list")
    flow.add("end", sum_up.call(), after=each)
    flow.enqueue()
    world.run()
    assert world.noted == [items, *items, items]
    assert world.states == ["succeeded"]


def test_a_map_over_what_is_no_list_fails_with_a_message_that_says_so(world: World) -> None:
    flow = Workflow()
    flow.add("list", world.note.call({"a": 1}))
    flow.map("each", world.note, over="list")
    flow.add("end", world.note.call("end"), after="each")
    flow.enqueue()
    world.run()
    (died,) = world.queue.insight.search(state="dead").jobs
    assert "map over 'list': its result is {'a': 1}, and not a list" in died.errors[-1].message
    assert world.nodes == {"list": "succeeded", "each": "failed", "end": "cancelled"}


@pytest.mark.parametrize("early", [True, False])
def test_a_node_waits_for_a_signal_to_its_workflow(world: World, *, early: bool) -> None:
    @world.queue.task(name="look")
    def look(ctx: Context) -> None:
        world.noted.append(ctx.results["approved"])

    flow = Workflow()
    flow.add("first", world.note.call("first"))
    flow.wait("approved", after="first")
    flow.add("end", look.call(), after="approved")
    handle = flow.enqueue()
    if early:
        assert world.queue.signal(handle, "approved", {"by": "ann"})
    world.run()
    if not early:
        assert world.noted == ["first"]
        assert world.queue.signal(handle, "approved", {"by": "ann"})
        world.run()
    assert world.noted == ["first", {"by": "ann"}]
    assert world.states == ["succeeded"]
    assert not world.queue.signal(handle, "approved", {"by": "bob"})
    with pytest.raises(SignalRefused, match="has ended"):
        world.queue.signal(handle, "rejected")


@STORED
def test_a_node_that_has_waited_too_long_fails_and_waits_again_when_it_is_retried(world: World) -> None:
    flow = Workflow()
    flow.wait("approved", timeout=60)
    flow.add("end", world.note.call("end"), after="approved")
    handle = flow.enqueue()
    later = datetime.now(UTC)
    for _ in range(2):
        world.run(now=later)
        assert world.states == ["running"]
        later += timedelta(seconds=61)
        world.run(now=later)
        assert world.nodes == {"approved": "failed", "end": "cancelled"}
        assert (
            "did not come before its deadline"
            in world.queue.insight.search(state="dead").jobs[0].errors[-1].message
        )
        assert handle.retry(what="downstream") == 2
    world.run(now=later)
    assert world.queue.signal(handle, "approved")
    world.run(now=later)
    assert world.noted == ["end"]
    assert handle.status() == "succeeded"


NODES = PgQueue("")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@NODES.task
def note() -> None: ...


Add = Callable[..., object]

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"if_failed": "failure"}, "if_failed='failure': use one of cancel, continue, wait"),
    ({"if_failed": ["cancel"]}, r"if_failed=\['cancel'\]: use one of cancel"),
    ({"after": {"a": "failure"}}, "after='failure': use one of cancel, continue, wait"),
    ({"after": 5}, "after=5: give names of nodes"),
    ({"after": [5]}, "after: 5 is no node; give its name"),
    ({"skip_if": True}, r"n: skip_if=True: write a condition, such as result\('extract'\) == 0"),
    (
        {"skip_if": result_of("a") == 0, "part": chain(note.call())},
        "n: skip_if is for a single job; give it to",
    ),
    ({"part": note}, r"n: .* is no part of a flow; write task.call"),
    ({"part": Workflow}, r"n: .* is no part of a flow; give task.call"),
    ({"part": None}, r"n: None is no part of a flow; give task.call"),
    ({"name": ""}, "name='': use 1 to 200 characters"),
    ({"name": 5}, "name=5: use 1 to 200 characters"),
]


def inside(additions: list[Addition]) -> FlowInside:
    """The flow of a running job, which puts what it adds here."""
    facts = FlowPosition(flow_id=1, flow_name="f", name=None, skip_if=None, before=())
    job = Claim(1, UUID(int=1), 1, 1, 25, 0, "default", "note", "{}", NOON.timestamp(), NOON.timestamp(), 0.0)
    return FlowInside(facts, job, additions)


def refused(add: Add, given: dict[str, Any], words: str) -> None:
    options = {"name": "n", "part": note.call(), **given}
    with pytest.raises(InvalidOption, match=words):
        add(options.pop("name"), options.pop("part"), **options)


@pytest.mark.parametrize(("given", "words"), MISTAKES)
def test_a_mistake_in_a_node_of_a_workflow_is_refused_and_adds_nothing(
    given: dict[str, Any], words: str
) -> None:
    flow = Workflow()
    refused(flow.add, given, words)
    assert flow.as_part().steps == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        *MISTAKES,
        ({"before": 5}, "before=5: give names of nodes"),
        ({"before": [None]}, "before: None is no node; give its name"),
    ],
)
def test_a_mistake_in_what_a_running_job_adds_is_refused_and_adds_nothing(
    given: dict[str, Any], words: str
) -> None:
    additions: list[Addition] = []
    refused(inside(additions).add, given, words)
    assert additions == []


def test_a_running_job_adds_a_node_with_a_condition() -> None:
    additions: list[Addition] = []
    inside(additions).add("n", note.call(), skip_if=result_of("a") == 0, if_failed="continue", before="b")
    (added,) = additions
    assert added.steps[0].spec == {"skip_if": ["==", ["result", "a"], 0]}
    assert (added.after, added.before) == ({None: "continue"}, ["b"])


def test_a_member_that_a_running_job_adds_to_a_group_has_to_be_a_part_of_a_flow() -> None:
    additions: list[Addition] = []
    with pytest.raises(InvalidOption, match=r"extend: .* is no part of a flow; write task.call"):
        inside(additions).extend([note.call(), note])  # type: ignore[list-item]  # the mistake
    assert additions == []
