"""Looking at flows and steering them, by their ids: what flow handles, the command line and dashboards ask for."""

from collections.abc import Callable, Collection, Sequence

from pgqueue.app.operator import operator_name
from pgqueue.errors import FlowNotFound, InvalidOption
from pgqueue.store import audit
from pgqueue.store.connections.database import Database
from pgqueue.store.drive import adrive, drive
from pgqueue.store.flows import flow_control, flow_queries
from pgqueue.store.jobs.sweep import aagain_after_deadlock, again_after_deadlock
from pgqueue.store.plan import Plan
from pgqueue.values.flows.flow import NodeState
from pgqueue.values.flows.record import FlowRecord, FlowState, NodeRecord
from pgqueue.values.flows.retry import WHAT, What
from pgqueue.values.jobs.job import states_of
from pgqueue.values.jobs.options import check_before, check_page, check_position, check_text, one_of

IDS = range(1 << 63)
LAST_PLACE = (1 << 31) - 1


class Flows:
    """The flows of a queue. Each method has an async version with an ``a`` before its name."""

    def __init__(self, database: Callable[[], Database]) -> None:
        """Made by ``queue.flows``. ``database`` returns the queue's, which may be another one in another context."""
        self._database = database

    def list(
        self,
        *,
        state: FlowState | str | Collection[FlowState | str] | None = None,
        kind: str | None = None,
        name: str | None = None,
        key: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[FlowRecord]:
        """Flows that match every filter given, newest first, without their nodes.

        Args:
            state: a state or several: ``waiting``, ``running``, ``succeeded``, ``failed``, ``cancelled``.
            kind: ``chain``, ``group`` or ``workflow``.
            name: of this name.
            key: of this key.
            before: with a lower id than this; give the last id of a page to get the next.
            limit: at most how many flows, up to 10,000.

        Raises:
            InvalidOption: there is no such state, or the limit is out of range.
        """
        found = _list_plan(state, kind=kind, name=name, key=key, before=before, limit=limit)
        return self._database().run(found)

    async def alist(
        self,
        *,
        state: FlowState | str | Collection[FlowState | str] | None = None,
        kind: str | None = None,
        name: str | None = None,
        key: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[FlowRecord]:
        """As :meth:`list`, awaited."""
        found = _list_plan(state, kind=kind, name=name, key=key, before=before, limit=limit)
        return await self._database().arun(found)

    def get(self, flow_id: int) -> FlowRecord:
        """A flow, its nodes, and why each of them waits. Members of groups of more than 512 are only counted.

        Raises:
            FlowNotFound: there is no record of it: not committed (yet), rolled back, or deleted.
        """
        return self._database().run(flow_queries.flow(checked_id(flow_id)))

    async def aget(self, flow_id: int) -> FlowRecord:
        """As :meth:`get`, awaited."""
        return await self._database().arun(flow_queries.flow(checked_id(flow_id)))

    def nodes(
        self,
        flow_id: int,
        *,
        parent: int,
        state: NodeState | str | Collection[NodeState | str] | None = None,
        after: int = -1,
        limit: int = 100,
    ) -> Sequence[NodeRecord]:
        """Members of a group in a flow, in order.

        Args:
            flow_id: which flow.
            parent: the id of the group's node.
            state: in this state, or in one of these.
            after: behind this place; give the last place of a page to get the next.
            limit: at most how many, up to 10,000.
        """
        found = _nodes_plan(flow_id, parent, state, after=after, limit=limit)
        return list(self._database().run(found))

    async def anodes(
        self,
        flow_id: int,
        *,
        parent: int,
        state: NodeState | str | Collection[NodeState | str] | None = None,
        after: int = -1,
        limit: int = 100,
    ) -> Sequence[NodeRecord]:
        """As :meth:`nodes`, awaited."""
        found = _nodes_plan(flow_id, parent, state, after=after, limit=limit)
        return list(await self._database().arun(found))

    def cancel(self, flow_id: int, *, connection: object = None, by: str | None = None) -> bool:
        """Cancel all of a flow that has not ended, also in the groups and workflows in it.

        Jobs that wait are cancelled, 1,000 nodes in each transaction; workers are asked to stop those that run, and the
        flow ends when these have ended. What they release does not start. Where it is interrupted, call it again.

        Args:
            flow_id: which.
            connection: do all on this connection, in its current transaction.
            by: who does it, for the audit; by default the user and the host of this process.

        Returns:
            Whether there was anything to cancel; False: it had ended.

        Raises:
            FlowNotFound: there is no record of it.
        """
        run = again_after_deadlock(lambda plan: self._database().run(plan, connection))
        return drive(flow_control.cancel_flow(checked_id(flow_id), by=operator_name(by)), run)

    async def acancel(self, flow_id: int, *, connection: object = None, by: str | None = None) -> bool:
        """As :meth:`cancel`, awaited."""
        run = aagain_after_deadlock(lambda plan: self._database().arun(plan, connection))
        return await adrive(flow_control.cancel_flow(checked_id(flow_id), by=operator_name(by)), run)

    def retry(
        self,
        flow_id: int,
        *,
        what: What = "downstream",
        connection: object = None,
        by: str | None = None,
    ) -> int:
        """Run parts of a flow again, all in one transaction. Parts that succeeded keep their results, unless all run again.

        Args:
            flow_id: which.
            what: ``failed``: the failed jobs, and what was cancelled because of them stays cancelled; ``downstream``:
                also what was cancelled or skipped because of them, or because the flow was cancelled; ``all``:
                everything from the start, of a flow that has ended.
            connection: do it on this connection, in its current transaction.
            by: who does it, for the audit; by default the user and the host of this process.

        Returns:
            How many jobs run again.

        Raises:
            FlowNotFound: there is no record of it.
            FlowRefused: nothing was changed: a live job has the unique key of one of its jobs, a job has no record any
                more, another flow of its key has not ended, or it is still being cancelled.
        """
        run = again_after_deadlock(lambda plan: self._database().run(plan, connection))
        return run(_retry_plan(flow_id, what, by))

    async def aretry(
        self,
        flow_id: int,
        *,
        what: What = "downstream",
        connection: object = None,
        by: str | None = None,
    ) -> int:
        """As :meth:`retry`, awaited."""
        run = aagain_after_deadlock(lambda plan: self._database().arun(plan, connection))
        return await run(_retry_plan(flow_id, what, by))


def checked_id(flow_id: int) -> int:
    """The id of a flow.

    Raises:
        InvalidOption: it is no number.
        FlowNotFound: no flow has such an id.
    """
    if isinstance(flow_id, bool) or not isinstance(flow_id, int):
        raise InvalidOption(f"flow_id={flow_id!r:.80}: a flow's id is a whole number, as in handle.id")
    if flow_id not in IDS:
        raise FlowNotFound(f"no record of flow {flow_id}: ids go up to {IDS[-1]}")
    return flow_id


def _list_plan(
    state: FlowState | str | Collection[FlowState | str] | None,
    *,
    kind: str | None,
    name: str | None,
    key: str | None,
    before: int | None,
    limit: int,
) -> Plan[list[FlowRecord]]:
    _check(name=name, key=key, kind=kind)
    states = states_of(state, FlowState)
    before = check_before(before)
    return flow_queries.flows(
        states=states, kind=kind, name=name, key=key, before=before, limit=check_page(limit)
    )


def _nodes_plan(
    flow_id: int,
    parent: int,
    state: NodeState | str | Collection[NodeState | str] | None,
    *,
    after: int,
    limit: int,
) -> Plan[tuple[NodeRecord, ...]]:
    return flow_queries.nodes(
        checked_id(flow_id),
        parent=checked_id(parent),
        states=states_of(state, NodeState),
        after=max(-1, min(check_position("after", after), LAST_PLACE)),
        limit=check_page(limit),
    )


def _retry_plan(flow_id: int, what: What, by: str | None) -> Plan[int]:
    one_of("what", what, WHAT)
    done = flow_control.retry(checked_id(flow_id), what)
    return audit.audited(done, "workflow retry", str(flow_id), by=operator_name(by), jobs=int, what=what)


def _check(**given: str | None) -> None:
    for what, text in given.items():
        if text is not None:
            check_text(what, text)
