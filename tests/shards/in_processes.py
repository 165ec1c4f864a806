"""An app on several databases whose task runs in processes of the worker; these import it."""

import os

from pgqueue import Context, PgQueue

queue = PgQueue(shards=os.environ["PGQUEUE_TEST_SHARDS"].split())


@queue.task(process=True)
def commit(ctx: Context) -> None:
    """Work on the shard on which the job is."""
    ctx.step("first", os.getpid)
    with ctx.transaction() as connection:
        connection.execute("insert into witness values (%s)", [ctx.job.id])
