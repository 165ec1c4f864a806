"""A schema that is downgraded while flows are live: no job is lost, and a flow that is enqueued after the upgrade runs."""

from looking import ask, until
from running import Running
from store.samples import LEASE, worker_info

from pgqueue import PgQueue, Workflow, chain, group
from pgqueue.store import claim, leases, schema

WHERE = "select status, count(*) from pgqueue.jobs group by status order by status"


async def test_jobs_of_live_flows_stay_and_wait_for_nothing_after_a_downgrade(
    queue: PgQueue, dsn: str, running: Running
) -> None:
    work = queue.task(name="work")(lambda: None)
    chain(work.call(), group([work.call(), work.call()]), work.call()).enqueue()
    turns = Workflow(key="k", in_turn=True)
    turns.add("one", work.call())
    turns.enqueue()
    turns.enqueue()
    info = worker_info()
    queue.database.run(leases.register(info, LEASE))
    assert len(queue.database.run(claim.claim(info.id, {"default": 1}))) == 1
    assert ask(queue, WHERE) == [("blocked", 4), ("ready", 1), ("running", 1)]
    await queue.aclose()

    schema.migrate(dsn, revision="0003")
    assert ask(dsn, WHERE) == [("ready", 5), ("running", 1)]
    schema.migrate(dsn)
    assert ask(dsn, WHERE) == [("ready", 5), ("running", 1)]
    ask(dsn, "update pgqueue.workers set lease_until = now() - interval '1 minute' returning 1")

    flow = await chain(work.call(), work.call()).aenqueue()
    async with running(queue):
        await until(lambda: ask(dsn, "select count(*) from pgqueue.jobs") == [(0,)])
    assert flow.status() == "succeeded"
    assert ask(dsn, "select outcome, count(*) from pgqueue.job_history group by outcome") == [
        ("succeeded", 8)
    ]
