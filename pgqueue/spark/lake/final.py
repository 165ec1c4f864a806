"""Which rows of ended jobs are final: no open transaction may add to them."""

from collections.abc import Sequence
from datetime import timedelta

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_exponential

from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import lake as plans
from pgqueue.store.pipeline.lake import Session


def final_below(database: Database, barrier: int, wait: timedelta) -> tuple[int, Sequence[Session]]:
    """Wait until every transaction up to the number ``barrier`` has ended, or the time has passed.

    Args:
        database: where the transactions are.
        barrier: a number above those of all transactions in progress.
        wait: for how long.

    Returns:
        The number below which all transactions have ended, and the open ones up to ``barrier``.
    """
    look = Retrying(
        retry=retry_if_result(lambda lowest: lowest <= barrier),
        wait=wait_exponential(multiplier=0.05, max=1),
        stop=stop_after_delay(wait),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    lowest: int = look(lambda: database.run(plans.horizon()).xmin)
    return lowest, () if lowest > barrier else database.run(plans.in_the_way(barrier))
