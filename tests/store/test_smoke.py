from conftest import Running

from pgqueue import JobState, PgQueue


async def test_a_job_runs_from_enqueue_to_history(queue: PgQueue, running: Running) -> None:
    @queue.task
    async def double(number: int) -> int:
        return number * 2

    handle = await double.aenqueue(21)
    async with running(queue):
        assert await handle.aresult(timeout=10) == 42
    assert await handle.astatus() is JobState.SUCCEEDED
    await queue.aclose()
