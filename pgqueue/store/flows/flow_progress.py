"""What follows in flows: the next jobs are released, skipped or cancelled, and flows end, in the transaction that ends a job.

A flow is a graph of nodes: jobs, and groups of nodes. An edge says that one node waits for another. A flow's row is the lock
of its graph: a transaction that decides what follows locks it first, and its next statement sees what the others have decided.
Only the members of a group that succeeded, which are many and on which nothing hangs by itself, are counted without that lock,
and those counts are locked before it, never after. See ``docs/adr/0027-a-flows-row-is-the-lock-of-its-graph.md``.

One transaction changes a bounded number of nodes. What is left then is a row of ``flow_work``, which a worker's upkeep takes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.jobs import admission
from pgqueue.store.jobs.ending import cancelled
from pgqueue.store.jobs.notifications import tell_ended
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.values.flows.flow import NodeKind, NodeState
from pgqueue.values.jobs.job import JobFlags, JobState

FOLLOWED_AT_ONCE = 2_000
"""Edges that one statement follows, and nodes that one cancels."""
_WAY = itemgetter(1, 2)
"""How a job ended, and what that concerns."""
OPEN = frozenset({NodeState.WAITING, NodeState.RELEASED})
NODE_STATES: Mapping[str, NodeState] = {
    JobState.SUCCEEDED: NodeState.SUCCEEDED,
    JobState.DEAD: NodeState.FAILED,
    JobState.CANCELLED: NodeState.CANCELLED,
}


@plan(transaction=True)
def ended(
    rows: Sequence[Row],
    results: Mapping[int, str],
    *,
    skipped: Collection[int] = (),
    now: datetime | None = None,
) -> Steps[None]:
    """Note how jobs of flows ended, and do what follows. Run it in the transaction that ends them.

    Args:
        rows: the id, the state and ``flags`` of each.
        results: what they returned, as it is stored, where they returned something.
        skipped: those of them that a condition of the flow kept from running.
        now: the instant; the database's own by default.
    """
    rows = sorted(rows)
    jobs = [row[0] for row in rows]
    ways = {*map(_WAY, rows)}  # a batch of many members has one: this takes no step of Python for each
    counted = {way for way in ways if way[0] == JobState.SUCCEEDED and way[1] & JobFlags.MEMBER}
    todo = _PendingWork()
    params = {
        "jobs": numbers(jobs),
        "results": texts(results.get(job) for job in jobs) if results else None,
    }
    if counted == ways:
        todo.closing = {row[0] for row in (yield Statement("flows/note_members", params))}
        if not todo.closing:
            return
        yield from _lock(nodes=todo.closing)
    else:
        yield from _lock(jobs=[row[0] for row in rows if _WAY(row) not in counted])
        states = texts(_node_state(row, skipped) for row in rows)
        found = yield Statement("flows/note_ended", {**params, "nodes": None, "states": states})
        if counted and found:
            yield from _lock(nodes=[row[0] for row in found])
        todo.note(found)
    yield from _do(todo, now=now)


@plan(transaction=True)
def resume(
    ended: Mapping[int, NodeState], groups: Collection[int], *, now: datetime | None = None
) -> Steps[None]:
    """Follow new edges from nodes that ended before, and end groups that are empty; their flow is locked.

    Args:
        ended: nodes that ended, and how.
        groups: released groups that may have no open member.
        now: the instant; the database's own by default.
    """
    todo = _PendingWork()
    todo.ended |= ended
    todo.closing |= {*groups}
    yield from _do(todo, now=now)


@plan(transaction=True)
def abandon(nodes: Collection[int], *, now: datetime | None = None) -> Steps[None]:
    """End nodes of a cancelled flow, which is locked. What waits for them is ended in the same way, and not released."""
    todo = _PendingWork()
    yield from _note_nodes(todo, dict.fromkeys(nodes, NodeState.CANCELLED))
    todo.ended, todo.failing = {}, set()
    yield from _do(todo, now=now)


@plan(transaction=True)
def work(*, now: datetime | None = None) -> Steps[bool]:
    """Do one piece of the work that is left in flows; False: there is none, or its flow is locked."""
    rows = yield Statement("flows/take_work", {})
    if not rows:
        return False
    _, free = yield from lock_free(nodes={row[0] for row in rows})
    busy = [(node, task, portion) for node, task, portion in rows if node not in free]
    yield from _postpone(busy, tells=False)
    rows = [row for row in rows if row[0] in free]
    nodes = sorted(free)
    found = yield Statement("flows/states", {"nodes": numbers(nodes)})
    states = {node: (NodeState(state), runs) for node, state, runs in found}
    todo = _PendingWork()
    for node, task, portion in rows:
        # Work of before a retry or a cancel of the flow fits no case: the row is gone, and nothing is left to do.
        match (task, states.get(node)):
            case "enter", (NodeState.RELEASED, True):
                todo.entering[node] = portion
            case "doom", (NodeState.CANCELLED | NodeState.SKIPPED, _):
                todo.doomed_groups[node] = portion
            case "follow", (state, _) if state not in OPEN:
                todo.ended[node] = state
    yield from _do(todo, now=now)
    return bool(rows)


class _PendingWork:
    """What is still to be done in this transaction.

    Attributes:
        ended: nodes that ended, and how; the edges from them are to be followed.
        failing: groups a member of which failed.
        closing: groups that may have no open member any more.
        released: nodes that wait for nothing.
        skipped: nodes that are not to run.
        doomed: nodes that are to be cancelled.
        doomed_groups: groups whose members are to be cancelled, and from which portion on.
        entering: released groups whose members are to be released, and from which portion on.
        roots: flows whose root ended, and how.
    """

    def __init__(self) -> None:
        self.ended: dict[int, NodeState] = {}
        self.failing: set[int] = set()
        self.closing: set[int] = set()
        self.released: set[int] = set()
        self.skipped: set[int] = set()
        self.doomed: set[int] = set()
        self.doomed_groups: dict[int, int] = {}
        self.entering: dict[int, int] = {}
        self.roots: dict[int, NodeState] = {}

    def note(self, rows: Iterable[Row]) -> None:
        """Take in the answer of ``sql/flows/note_ended.sql``."""
        for node, flow, parent, said in rows:
            if said == "closing":
                self.closing.add(node)
                continue
            state = self.ended[node] = NodeState(said)
            if parent is None:
                self.roots[flow] = state
            elif state.is_failure:
                self.failing.add(parent)


def _do(todo: _PendingWork, *, now: datetime | None) -> Steps[None]:
    while True:
        if todo.closing:
            yield from _close(todo)
        elif todo.doomed_groups:
            yield from _find_members(todo)
        elif todo.doomed:
            yield from _doom(todo, now=now)
        elif todo.skipped:
            yield from _skip(todo, now=now)
        elif todo.ended or todo.failing:
            yield from _follow(todo)
        elif todo.released or todo.entering:
            yield from _release(todo, now=now)
        elif todo.roots:
            yield from _end_flows(todo, now=now)
        else:
            return


def _close(todo: _PendingWork) -> Steps[None]:
    closing, todo.closing = sorted(todo.closing), set()
    rows = yield Statement("flows/closed", {"nodes": numbers(closing)})
    states = {node: NodeState.FAILED if failed else NodeState.SUCCEEDED for node, _, failed in rows}
    yield from _note_nodes(todo, states)


def _node_state(row: Row, skipped: Collection[int]) -> NodeState:
    return NodeState.SKIPPED if row[0] in skipped else NODE_STATES[row[1]]


def _note_nodes(todo: _PendingWork, states: Mapping[int, NodeState]) -> Steps[None]:
    if not states:
        return
    nodes = sorted(states)
    rows = yield Statement(
        "flows/note_ended",
        {
            "nodes": numbers(nodes),
            "jobs": None,
            "states": texts(states[node] for node in nodes),
            "results": None,
        },
    )
    todo.note(rows)


def _follow(todo: _PendingWork) -> Steps[None]:
    """Look what the ends of nodes mean for the nodes behind them."""
    events = todo.ended | dict.fromkeys(todo.failing - todo.ended.keys(), NodeState.FAILING)
    todo.ended, todo.failing = {}, set()
    nodes = sorted(events)
    rows = yield Statement(
        "flows/follow",
        {
            "nodes": numbers(nodes),
            "states": texts(events[node] for node in nodes),
            "limit": FOLLOWED_AT_ONCE,
        },
    )
    if any(node is None for node, _ in rows):
        ended = [node for node in nodes if events[node] is not NodeState.FAILING]
        yield from _postpone([(node, "follow", 0) for node in ended])
    for node, effect in rows:
        if node is None:
            continue
        {"release": todo.released, "skip": todo.skipped, "cancel": todo.doomed}[effect].add(node)
    todo.released -= todo.skipped | todo.doomed


def _doom(todo: _PendingWork, *, now: datetime | None) -> Steps[None]:
    """Cancel nodes, and those that are cancelled because of them."""
    nodes, todo.doomed = sorted(todo.doomed), set()
    rows = yield Statement(
        "flows/doom", {"nodes": numbers(nodes), "limit": max(FOLLOWED_AT_ONCE, len(nodes))}
    )
    todo.released -= {row[0] for row in rows}
    yield from _cancel_jobs([row[4] for row in rows if row[4] is not None], now=now)
    yield from _postpone([(row[0], "follow", 0) for row in rows if row[5]])
    todo.ended |= {row[0]: NodeState.CANCELLED for row in rows if not row[5]}
    todo.closing |= {row[2] for row in rows if row[2] is not None}
    todo.failing |= {row[2] for row in rows if row[2] is not None}
    todo.doomed_groups |= {row[0]: 0 for row in rows if NodeKind(row[3]).is_group}


def _skip(todo: _PendingWork, *, now: datetime | None) -> Steps[None]:
    """End nodes that are not to run, as skipped: what waits for them goes on."""
    nodes, todo.skipped = sorted(todo.skipped), set()
    rows = yield Statement("flows/kinds", {"nodes": numbers(nodes)})
    yield from _note_nodes(todo, dict.fromkeys([row[0] for row in rows], NodeState.SKIPPED))
    yield from _cancel_jobs([row[2] for row in rows if row[2] is not None], now=now)
    todo.doomed_groups |= {row[0]: 0 for row in rows if NodeKind(row[1]).is_group}


def _find_members(todo: _PendingWork) -> Steps[None]:
    """Cancel the members of groups that do not run; of a large group a portion now, the others later."""
    groups, todo.doomed_groups = todo.doomed_groups, {}
    for portion in sorted({*groups.values()}):
        some = sorted(node for node, its in groups.items() if its == portion)
        rows = yield Statement("flows/members", {"nodes": numbers(some), "portion": portion})
        todo.doomed |= {row[2] for row in rows if row[2] is not None}
        yield from _postpone(
            [(node, "doom", portion + 1) for node in sorted({row[0] for row in rows if row[3]})]
        )


def _release(todo: _PendingWork, *, now: datetime | None) -> Steps[None]:
    """Release nodes: jobs are admitted, and of groups the members that wait for no other."""
    nodes, todo.released = sorted(todo.released), set()
    reasons: list[str] = []
    if nodes:
        rows = yield Statement("flows/release", {"nodes": numbers(nodes)})
        reasons += [reason(node) for node, kind, _ in rows if kind == NodeKind.JOB]
        todo.entering |= {node: 0 for node, kind, _ in rows if NodeKind(kind).is_group}
    entering, todo.entering = todo.entering, {}
    for node, portion in sorted(entering.items()):
        rows = yield Statement("flows/enter", {"node": node, "portion": portion})
        members = [row for row in rows if row[0] is not None]
        if len(members) < len(rows):
            yield from _postpone([(node, "enter", portion + 1)])
        reasons.append(reason(node, portion))
        reasons += [
            reason(row[0]) for row in members if row[3]
        ]  # it waited for one that was cancelled before
        todo.entering |= {row[0]: 0 for row in members if NodeKind(row[1]).is_group}
        todo.closing.add(node)  # it may be empty
    if reasons:
        yield from admission.admit(reasons, now=now)


def _end_flows(todo: _PendingWork, *, now: datetime | None) -> Steps[None]:
    """End flows whose root ended, and start the next one of each key."""
    roots, todo.roots = todo.roots, {}
    flows = sorted(roots)
    params = {"flows": numbers(flows), "states": texts(roots[flow] for flow in flows), "now": now}
    rows = yield Statement("flows/end", params)
    if keys := sorted({row[0] for row in rows if row[0] is not None}):
        yield Statement("flows/lock_key", {"keys": texts(keys)})
        started = yield Statement("flows/next_of_key", {"keys": texts(keys)})
        todo.released |= {row[0] for row in started}


def _cancel_jobs(job_ids: Collection[int], *, now: datetime | None) -> Steps[None]:
    if job_ids:
        yield from admission.forget(job_ids)
        rows = yield from cancelled(job_ids, now=now)
        yield from tell_ended(rows)


def _postpone(rows: Collection[tuple[int, str, int]], *, tells: bool = True) -> Steps[None]:
    if rows:
        nodes, tasks, portions = zip(*rows, strict=True)
        params = {
            "nodes": numbers(nodes),
            "tasks": texts(tasks),
            "portions": numbers(portions),
            "tells": tells,
        }
        yield Statement("flows/postpone", params)


@plan(transaction=True)
def lock_free(*, jobs: Collection[int] = (), nodes: Collection[int] = ()) -> Steps[tuple[set[int], set[int]]]:
    """Lock the flows of these jobs and nodes, but for those that another transaction has locked.

    Returns:
        The jobs and the nodes whose flows are locked for this transaction now.
    """
    rows = yield Statement("flows/free", {"jobs": numbers([*jobs]), "nodes": numbers([*nodes])})
    return {row[1] for row in rows} & {*jobs}, {row[0] for row in rows} & {*nodes}


def _lock(*, jobs: Collection[int] = (), nodes: Collection[int] = ()) -> Steps[None]:
    yield Statement("flows/lock", {"jobs": numbers([*jobs]), "nodes": numbers([*nodes])})


def reason(node: int, portion: int | None = None) -> str:
    """What a job of a flow waits for: its own node, which waits for others; or a portion of the group that it is in."""
    return f"node:{node}" if portion is None else f"node:{node}:{portion}"
