"""What follows in a flow when its jobs end."""

from collections.abc import Mapping
from datetime import datetime

from pgqueue.store.ending import States
from pgqueue.store.plan import Steps, plan


@plan(transaction=True)
def ended(states: States, results: Mapping[int, str], *, now: datetime | None = None) -> Steps[None]:
    """Note how jobs of flows ended, and release what follows. Run it in the transaction that ends them."""
    if states or results or now:  # not built yet: no job is part of a flow
        yield from ()
