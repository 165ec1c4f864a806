"""The facts that say why a job in memory does not run: those of ``sql/insight/why.sql`` and its neighbours that a test can have.

No worker serves a queue in memory, so what is said of workers is that a drain runs the job.
"""

from collections.abc import Iterator
from datetime import datetime

from pgqueue.testing.claims import QueueState
from pgqueue.testing.flows import EdgeRow, NodeRow
from pgqueue.testing.row import JobRow
from pgqueue.values.flows.flow import NodeState
from pgqueue.values.insight.why_facts import MOST_NAMED, HeldPlace, LimitFacts, NodeFacts, WhyFacts, opens_in
from pgqueue.values.jobs.job import JobFlags, JobState
from pgqueue.values.limits.limit import QUEUE, keys_of
from pgqueue.values.limits.status import keys_under


def facts_of(around: QueueState, row: JobRow, now: datetime) -> WhyFacts:
    """What is known of a job that has a record."""
    standing = around.queues.of(row.new.queue)
    last = row.errors[-1] if row.errors else None
    in_lane = row.shown_state is not row.state
    awaited = around.mailbox.awaited(row.id, now)
    node = around.flows.of_job(row.id) if row.state is JobState.BLOCKED and awaited is None else None
    waits = not row.state.ended and not row.is_running
    since = row.ended_at if row.state.ended else row.started_at
    return WhyFacts(
        state=row.shown_state,
        queue=row.new.queue,
        task=row.new.task,
        now=now,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        due_in=(row.run_at - now).total_seconds(),
        since=None if since is None else (now - since).total_seconds(),
        cancel_requested=row.cancel_requested,
        expires_in=None if row.expires_at is None or not waits else (row.expires_at - now).total_seconds(),
        reason=row.reason,
        last_error=None if last is None else last.type,
        last_message=None if last is None else last.message,
        suspect=bool((row.flags or 0) & JobFlags.SUSPECT),
        crashes=sum(error.crashed for error in row.errors),
        paused=standing.paused_at is not None,
        paused_for=None if standing.paused_at is None else (now - standing.paused_at).total_seconds(),
        paused_by=standing.paused_by,
        paused_why=standing.paused_why,
        ahead=_ahead(around, row) if row.is_ready and not in_lane else None,
        waits_for=None if awaited is None else [awaited[0]],
        waits_until=None if awaited is None else [awaited[1]],
        in_lane=in_lane,
        limits=_limits(around, row, now) if row.is_ready else [],
        ahead_in_lane=_ahead(around, row) if in_lane else None,
        in_other_lanes=_in_other_lanes(around, row) if in_lane else None,
        flow=None if node is None else node.flow.id,
        flow_behind=None if node is None else _behind(around, node),
        nodes=[] if node is None else [_node(edge) for edge in _unmet(node)[: MOST_NAMED + 1]],
        in_memory=True,
    )


def _ahead(around: QueueState, row: JobRow) -> int:
    return sum(
        other.is_ready
        and (other.new.queue, other.new.lane) == (row.new.queue, row.new.lane)
        and other.place < row.place
        for other in around.rows.values()
    )


def _in_other_lanes(around: QueueState, row: JobRow) -> int:
    return sum(
        other.is_ready and other.new.queue == row.new.queue and other.new.lane not in {None, row.new.lane}
        for other in around.rows.values()
    )


def _limits(around: QueueState, row: JobRow, now: datetime) -> list[LimitFacts]:
    return [
        LimitFacts(
            key.limit,
            key.text,
            None if numbers is None else numbers.most,
            None if numbers is None else numbers.every,
            None if numbers is None else numbers.burst,
            len(
                held := _holders_of_key(around, key.text)
                if numbers is not None and numbers.most is not None
                else []
            ),
            [HeldPlace(one.id) for one in held[: MOST_NAMED + 1]],
            None
            if numbers is None or numbers.every is None
            else opens_in(numbers.rate, around.lanes.tats.get(key.text, 0), now, row.new.cost or 1),
            key.limit.startswith(QUEUE) or key.limit in around.lanes.declared(),
        )
        for key, numbers in around.lanes.of(row)
    ]


def _holders_of_key(around: QueueState, key: str) -> list[JobRow]:
    """The jobs that hold a place of a key; one that keeps its place holds none of its queue as a whole."""
    return [
        row
        for row in around.rows.values()
        if (row.is_running and key in {one.text for one in keys_under(row.new.queue, row.new.lane or "")})
        or (row.keeps_place and key in {one.text for one in keys_of(row.new.lane or "")})
    ]


def _behind(around: QueueState, node: NodeRow) -> int | None:
    if node.flow.state != "waiting":
        return None
    others = around.flows.unended(node.flow.new.key)
    return min((other.id for other in others if other.id < node.flow.id), default=None)


def _unmet(node: NodeRow) -> list[EdgeRow]:
    """Return what a node, and each group that it is in, waits for: first that of the outermost group; what failed at the front."""
    levels = [level for level in _up(node) if level.state is NodeState.WAITING]
    found = [
        (edge.before.state not in {NodeState.FAILED, NodeState.CANCELLED}, edge)
        for level in reversed(levels)
        for other in node.flow.nodes
        for edge in other.edges
        if edge.after is level and not edge.met
    ]
    return [edge for _, edge in sorted(found, key=lambda one: one[0])]


def _up(node: NodeRow | None) -> Iterator[NodeRow]:
    while node is not None:
        yield node
        node = node.parent


def _node(edge: EdgeRow) -> NodeFacts:
    node = edge.before
    job = _failed_job(node) if node.state is NodeState.FAILED else node.job
    last = job.errors[-1] if job is not None and job.errors else None
    is_dead = job is not None and job.state is JobState.DEAD
    return NodeFacts(
        node.id,
        node.label,
        node.new.kind,
        node.state,
        edge.rule,
        None if job is None else job.id,
        None if job is None or job.state.ended else job.shown_state,
        is_dead,
        job.reason if job is not None and is_dead else None,
        last.type if last is not None and is_dead else None,
        last.message if last is not None and is_dead else None,
    )


def _failed_job(node: NodeRow) -> JobRow | None:
    """The job of a node that failed; of a group, of its first member that did."""
    while node.job is None:
        failed = next((one for one in node.members if one.state is NodeState.FAILED), None)
        if failed is None:
            return None
        node = failed
    return node.job
