"""Looking at flows and steering them, by their ids: what flow handles, the command line and dashboards ask for."""

from pgqueue.errors import FlowNotFound, InvalidOption
from pgqueue.store import flow_control
from pgqueue.store.database import Database
from pgqueue.store.sweep import aagain_after_deadlock, again_after_deadlock, arun_sweep, run_sweep
from pgqueue.values.codec import Codec
from pgqueue.values.flow_retry import WHAT, What
from pgqueue.values.options import one_of

IDS = range(1 << 63)


class FlowSteering:
    """Everything about flows that needs no task.

    Attributes:
        database: where the flows are.
        codec: decodes what is stored of jobs; None: it is stored in clear.
    """

    database: Database
    codec: Codec | None

    def cancel_flow(self, flow_id: int, *, connection: object = None) -> bool:
        """Cancel all of a flow that has not ended, also in the groups and workflows in it.

        Jobs that wait are cancelled, 1,000 nodes in each transaction; workers are asked to stop those that run, and the
        flow ends when these have ended. What they release does not start. Where it is interrupted, call it again.

        Args:
            flow_id: which.
            connection: do all on this connection, in its current transaction.

        Returns:
            Whether there was anything to cancel; False: it had ended.

        Raises:
            FlowNotFound: there is no record of it.
        """
        run = again_after_deadlock(lambda plan: self.database.run(plan, connection))
        return run_sweep(flow_control.cancelling(checked_id(flow_id)), run)

    async def acancel_flow(self, flow_id: int, *, connection: object = None) -> bool:
        """As :meth:`cancel_flow`, awaited."""
        run = aagain_after_deadlock(lambda plan: self.database.arun(plan, connection))
        return await arun_sweep(flow_control.cancelling(checked_id(flow_id)), run)

    def retry_flow(self, flow_id: int, *, what: What = "downstream", connection: object = None) -> int:
        """Run parts of a flow again, all in one transaction. Parts that succeeded keep their results, unless all run again.

        Args:
            flow_id: which.
            what: ``failed``: the failed jobs, and what was cancelled because of them stays cancelled; ``downstream``:
                also what was cancelled or skipped because of them, or because the flow was cancelled; ``all``:
                everything from the start, of a flow that has ended.
            connection: do it on this connection, in its current transaction.

        Returns:
            How many jobs run again.

        Raises:
            FlowNotFound: there is no record of it.
            FlowRefused: nothing was changed: a live job has the unique key of one of its jobs, a job has no record any
                more, another flow of its key has not ended, or it is still being cancelled.
        """
        one_of("what", what, WHAT)
        run = again_after_deadlock(lambda plan: self.database.run(plan, connection))
        return run(flow_control.retry(checked_id(flow_id), what))

    async def aretry_flow(self, flow_id: int, *, what: What = "downstream", connection: object = None) -> int:
        """As :meth:`retry_flow`, awaited."""
        one_of("what", what, WHAT)
        run = aagain_after_deadlock(lambda plan: self.database.arun(plan, connection))
        return await run(flow_control.retry(checked_id(flow_id), what))


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
