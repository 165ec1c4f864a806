"""What jobs in memory have around them."""

from typing import NamedTuple

from pgqueue.testing.flows import Flows
from pgqueue.testing.known_queues import KnownQueues
from pgqueue.testing.lanes import Lanes
from pgqueue.testing.mailbox import Mailbox
from pgqueue.testing.row import Row


class Around(NamedTuple):
    """The jobs of a queue, by id, and their queues, limits, flows and signals."""

    rows: dict[int, Row]
    queues: KnownQueues
    lanes: Lanes
    flows: Flows
    mailbox: Mailbox
