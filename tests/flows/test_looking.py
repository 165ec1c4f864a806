"""Looking at flows: lists, one of them, why each node waits, pages of large groups, results; and drawings of all that."""

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from flows.world import World, every_world

from pgqueue import Codec, JobPart, PgQueue, Workflow, chain, group
from pgqueue.cli.main import main
from pgqueue.errors import FlowNotDone, FlowNotFound, InvalidOption
from pgqueue.testing import drain
from pgqueue.values.flows.drawing import WIDTH, draw_flow, levels_of, mermaid, svg
from pgqueue.values.flows.flow import NodeState
from pgqueue.values.flows.record import FlowRecord, FlowState

if TYPE_CHECKING:
    from collections.abc import Callable

world = every_world
STORED = pytest.mark.parametrize("world", ["database"], indirect=True)
"""For the command, and for what reads tables."""
HOSTILE = [
    '</svg><script>alert("x")</script>',
    'a"]; click n1 "javascript:x" %% `end`',
    "new\nline\x1b[31m\x07",
    "subgraph end & --> n2 #quot;",
    "ñ 漢字 🙂",
    "x" * 200,
]


def why(found: FlowRecord) -> dict[str, str | None]:
    return {node.name: node.why for node in found.nodes if node.name is not None}


def test_a_list_shows_flows_newest_first_and_how_their_jobs_stand(world: World) -> None:
    first = chain(world.note.call(1), world.note.call("fail"), world.note.call(3), name="nightly").enqueue()
    world.run()
    second = group([world.note.call(1), world.note.call(2)]).enqueue()
    third = Workflow("shop", key="k")
    third.add("a", world.note.call(1))
    last = third.enqueue()
    found = world.queue.flows.list()
    assert [one.id for one in found] == [last.id, second.id, first.id]
    assert found[2].counts == {"succeeded": 1, "failed": 1, "cancelled": 1}
    assert (found[2].state, found[2].name, found[2].kind) == (FlowState.FAILED, "nightly", "chain")
    assert found[2].ended_at is not None
    assert found[1].counts == {"released": 2}
    assert [one.id for one in world.queue.flows.list(state="failed")] == [first.id]
    assert [one.id for one in world.queue.flows.list(state=["failed", "running"], kind="group")] == [
        second.id
    ]
    assert [one.id for one in world.queue.flows.list(name="shop")] == [last.id]
    assert [one.id for one in world.queue.flows.list(key="k")] == [last.id]
    assert [one.id for one in world.queue.flows.list(before=last.id, limit=1)] == [second.id]
    with pytest.raises(InvalidOption, match="state='lost': the states are waiting"):
        world.queue.flows.list(state="lost")
    with pytest.raises(InvalidOption, match="name"):
        world.queue.flows.list(name="a\0b")


def test_each_node_says_why_it_waits(world: World) -> None:
    @world.queue.task(name="watch")
    def watch() -> None:
        world.noted.append(why(handle.show())["right"])
        handle.jobs[1].cancel()
        world.noted.append(str(why(handle.show())["right"]).removeprefix(world.noted[0]))

    flow = Workflow("shop", key="k")
    flow.add("left", world.note.using(queue="other").call(1))
    flow.add("right", watch.using(priority=5).call())
    flow.add("later", world.note.using(delay=3600).call(3))
    flow.add("both", world.note.call(4), after={"left": "cancel", "right": "wait"})
    flow.add("many", group([world.note.call(5), world.note.call(6)]), after="both")
    handle = flow.enqueue()
    drain(world.queue, queues=["default"])
    assert world.noted == ["running: attempt 1 of 25", "; its worker has been asked to stop it"]
    found = handle.show()
    said = why(found)
    assert said["left"] == f"in queue 'other'; see `pgqueue jobs show {handle.jobs[0].id}`"
    assert said["right"] is None
    assert re.fullmatch(r"due at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", str(said["later"]))
    assert said["both"] == "waits for 'left' (ready) and 'right' (succeeded)" or "right" not in str(
        said["both"]
    )
    assert said["many"] == "waits for 'both' (blocked)"
    inside = [node.why for node in found.nodes if node.name is None and node.parent != found.nodes[0].id]
    assert inside[1:] == ["waits for the start of 'many'"] * 2


def test_a_node_that_waits_for_a_retry_says_so(world: World) -> None:
    flow = Workflow(if_failed="wait")
    flow.add("left", world.note.call("fail"))
    flow.add("right", world.note.using(delay=3600).call(2))
    flow.add("last", world.note.call(3), after=["left", "right"])
    handle = flow.enqueue()
    world.run()
    assert (
        why(handle.show())["last"] == "waits for 'left' (failed; waits for its retry) and 'right' (scheduled)"
    )


def test_a_flow_that_waits_for_its_turn_names_the_one_before(world: World) -> None:
    handles = []
    for _ in range(2):
        flow = Workflow(key="k", in_turn=True)
        flow.add("a", world.note.call(1))
        handles.append(flow.enqueue())
    assert handles[1].show().nodes[0].why == f"waits for its turn, behind flow {handles[0].id} of key 'k'"
    assert f"behind flow {handles[0].id} of key 'k'" in draw_flow(handles[1].show())


@STORED
def test_a_large_group_is_summed_up_and_given_in_pages(world: World) -> None:
    handle = group([world.note.call(n) for n in range(20_000)], on_end=world.note.call("end")).enqueue()
    found = handle.show()
    assert found.counts == {"waiting": 1, "released": 20_000}
    assert len(found.nodes) == 3
    members = next(node for node in found.nodes if node.name == "members")
    assert members.members == {"released": 20_000}
    page = world.queue.flows.nodes(handle.id, parent=members.id, limit=3)
    assert [node.place for node in page] == [0, 1, 2]
    assert page[0].why is not None
    page = world.queue.flows.nodes(handle.id, parent=members.id, after=19_998, state="released")
    assert [node.place for node in page] == [19_999]
    assert "members (20,000): 20,000 in progress" in draw_flow(found)
    assert "members (20,000)" in svg(found)
    world.queue.flows.cancel(handle.id)
    assert world.count("jobs") == 0
    assert handle.retry() == 20_001
    assert world.count("jobs") == 20_001
    assert handle.show().counts == {"waiting": 1, "released": 20_000}


def test_the_members_of_a_large_group_are_counted_and_given_in_pages(world: World) -> None:
    handle = group([world.note.call(n) for n in range(513)], on_end=world.note.call("end")).enqueue()
    found = handle.show()
    assert found.counts == {"waiting": 1, "released": 513}
    assert [node.label for node in found.nodes] == ["workflow", "members", "on_end"]
    assert found.nodes[1].members == {"released": 513}
    assert found.nodes[1].why == "its parts: 513 in progress"
    pages = [
        world.queue.flows.nodes(handle.id, parent=found.nodes[1].id, after=n, limit=3) for n in (-1, 511)
    ]
    assert [[node.place for node in page] for page in pages] == [[0, 1, 2], [512]]
    (last,) = pages[1]
    assert last.why == f"in queue 'default'; see `pgqueue jobs show {last.job_id}`"
    assert world.queue.flows.nodes(handle.id, parent=found.nodes[1].id, state="waiting") == []
    (waits,) = world.queue.flows.nodes(handle.id, parent=found.nodes[0].id, state="waiting")
    assert waits.why == "waits for 'members' (running)"


@pytest.mark.parametrize("place", ["x", True, 1.5])
def test_a_page_that_begins_at_no_number_is_refused(world: World, place: Any) -> None:
    handle = group([world.note.call(1), world.note.call(2)]).enqueue()
    parent = next(node.parent for node in handle.show().nodes if node.task == "note" and node.parent)
    looks: list[Callable[[], object]] = [
        lambda: world.queue.flows.list(before=place),
        lambda: world.queue.flows.nodes(handle.id, parent=parent, after=place),
        lambda: world.queue.insight.search(before=place),
    ]
    if not world.queue.database.in_memory:
        looks.append(lambda: world.queue.insight.audit(before=place))
    for look in looks:
        with pytest.raises(InvalidOption, match=r"(before|after)=.*: use a whole number"):
            look()
    found = [
        len(world.queue.flows.nodes(handle.id, parent=parent, after=at)) for at in (-(10**30), 0, 10**30)
    ]
    assert found == [2, 1, 0]


def test_a_handle_waits_for_the_end_and_has_the_results_of_named_nodes(world: World) -> None:
    flow = Workflow()
    flow.add("a", world.note.call({"rows": 3}))
    flow.add("b", world.note.call(None), after="a")
    flow.add("inner", chain(world.note.call("inside")), after="a")
    handle = flow.enqueue()
    with pytest.raises(FlowNotDone, match=f"flow {handle.id} has not ended in time: it is running"):
        handle.join(timeout=0)
    assert handle.results() == {}
    world.run()
    assert handle.join(timeout=1) is FlowState.SUCCEEDED
    assert handle.status() is FlowState.SUCCEEDED
    assert handle.results() == {"a": {"rows": 3}, "b": None}


async def test_awaited_all_is_the_same(world: World) -> None:
    handle = await chain(world.note.call(1)).aenqueue()
    with pytest.raises(FlowNotDone):
        await handle.ajoin(timeout=timedelta(0))
    drain_of_it = await handle.ashow()
    assert drain_of_it == handle.show()
    assert await handle.astatus() is FlowState.RUNNING
    assert await world.queue.flows.alist() == world.queue.flows.list()
    parent = drain_of_it.nodes[0].id
    assert await world.queue.flows.anodes(handle.id, parent=parent) == world.queue.flows.nodes(
        handle.id, parent=parent
    )
    await handle.acancel()
    assert await handle.ajoin() is FlowState.CANCELLED
    assert await handle.aresults() == {}
    await world.queue.aclose()


@STORED
async def test_an_awaited_retry_is_the_same(world: World) -> None:
    handle = await chain(world.note.call(1)).aenqueue()
    await handle.acancel()
    assert await handle.aretry() == 1
    await world.queue.aclose()


@STORED
def test_results_are_decoded(dsn: str, world: World) -> None:
    class Turned(Codec):
        def encode(self, data: bytes, part: JobPart) -> str:  # noqa: ARG002
            return data.decode()[::-1]

        def decode(self, text: str, part: JobPart) -> bytes:
            assert part.task == "give"
            assert part.meta == {"tenant": 7}
            return text[::-1].encode()

    queue = PgQueue(dsn, codec=Turned())

    @queue.task(name="give")
    def give(what: int) -> int:
        return what

    handle = chain(give.using(meta={"tenant": 7}).call(42)).enqueue()
    drain(queue)
    assert handle.results() == {"1": 42}
    assert world.rows("select result from pgqueue.nodes where name = '1'") == [({"$encoded": "24"},)]
    queue.close()


@STORED
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_break_no_drawing(name: str, world: World) -> None:
    flow = Workflow(name, key=name)
    flow.add(name, world.note.call(1))
    flow.add("inner", group([world.note.call(2)], name=name), after=name)
    found = flow.enqueue().show()
    text = draw_flow(found)
    assert all(one.isprintable() or one == "\n" for one in text)
    assert all(len(line) <= WIDTH for line in text.splitlines())
    tree = ET.fromstring(svg(found))  # noqa: S314 - written here
    assert not [one for one in tree.iter() if one.tag.endswith("script")]
    for line in mermaid(found).splitlines():
        for quoted in re.findall(r"\[(.*)\]", line):
            assert re.fullmatch(r'"[\w .,:#;()-]*"', quoted, re.ASCII), line
    shown = CliRunner().invoke(main, ["--dsn", str(world.queue.database.dsn), "workflows", "list"])
    assert shown.exit_code == 0, shown.output
    assert "\x1b[31m" not in shown.output


def test_two_hundred_nodes_fit_a_terminal_in_the_order_in_which_they_can_run(world: World) -> None:
    flow = Workflow("large")
    for number in reversed(range(200)):
        after = [f"n{number - 1}"] if number % 10 else []
        flow.add(f"n{number}", world.note.call(number), after=after)
    found = flow.enqueue().show()
    lines = draw_flow(found).splitlines()
    assert all(len(line) <= WIDTH for line in lines)
    at = {name: place for place, line in enumerate(lines) for name in re.findall(r"[○▶] (n\d+)", line)}
    assert all(at[f"n{number - 1}"] < at[f"n{number}"] for number in range(200) if number % 10)
    levels = levels_of(found.nodes[1:])
    assert sorted(set(levels.values())) == [*range(10)]


@STORED
def test_the_command_lists_draws_cancels_and_retries(world: World, tmp_path: object) -> None:
    def said(*arguments: str, code: int = 0) -> str:
        dsn = str(world.queue.database.dsn)
        result = CliRunner().invoke(main, ["--dsn", dsn, "workflows", *arguments])
        assert result.exit_code == code, result.output
        return result.output

    flow = Workflow("shop", key="k")
    flow.add("extract", world.note.call("fail"))
    flow.add("load", world.note.call(2), after={"extract": "continue"})
    flow.add("report", chain(world.note.call(3), world.note.call(4)), after="load")
    handle = flow.enqueue()
    identity = str(handle.id)
    assert "shop" in said("list")
    assert '"name": "shop"' in said("list", "--json", "--state", "running", "--key", "k")
    assert "no workflows match" in said("list", "--name", "other")
    text = said("show", identity)
    assert "▶ extract: in queue 'default'" in text
    assert "○ load ← extract: waits for 'extract' (ready)" in text
    assert "○ report ← load: waits for 'load' (blocked)" in text
    assert "    ○ 2 ← 1: waits for '1' (blocked)" in text
    assert "-->|continue|" in said("show", identity, "--mermaid")
    assert '"why": "waits for' in said("show", identity, "--json")
    path = f"{tmp_path}/flow.svg"
    said("show", identity, "--svg", path)
    assert ET.parse(path).getroot().tag.endswith("svg")  # noqa: S314 - written here
    said("show", identity, "--json", "--mermaid", code=2)
    assert said("cancel", identity) == f"{identity}: cancelled\n"
    assert "not changed: it has ended" in said("cancel", identity, code=1)
    assert "no record of flow 4711" in said("cancel", "4711", code=1)
    assert said("retry", identity) == f"{identity}: 4 jobs run again\n"
    world.run()
    assert said("retry", identity, "--what", "failed") == f"{identity}: 1 jobs run again\n"
    world.well = True
    world.run()
    assert "0 jobs run again" in said("retry", identity, code=1)
    assert said("retry", "4711", code=2)
    assert world.states == ["succeeded"]


def test_of_a_flow_that_there_is_not_nothing_is_shown(world: World) -> None:
    for look in (world.queue.flows.get, lambda flow_id: world.queue.flows.nodes(flow_id, parent=1)):
        with pytest.raises(FlowNotFound, match="no record of flow 4711"):
            look(4711)
    with pytest.raises(InvalidOption, match="flow_id='7'"):
        world.queue.flows.get("7")  # type: ignore[arg-type]  # the mistake


def test_a_time_is_shown_in_utc(world: World) -> None:
    at = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)
    handle = chain(world.note.using(run_at=at).call(1)).enqueue()
    assert handle.show().nodes[1].why == "due at 2100-01-02 03:04:05 UTC"
    assert handle.show().nodes[1].state is NodeState.RELEASED
