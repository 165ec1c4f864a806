"""What jobs in memory have around them."""

from typing import NamedTuple

from pgqueue.testing.flows import FlowBook
from pgqueue.testing.known_queues import KnownQueues
from pgqueue.testing.lanes import LaneBook
from pgqueue.testing.mailbox import Mailbox
from pgqueue.testing.row import JobRow


class QueueState(NamedTuple):
    """The jobs of a queue, by id, and their queues, limits, flows and signals."""

    rows: dict[int, JobRow]
    queues: KnownQueues
    lanes: LaneBook
    flows: FlowBook
    mailbox: Mailbox
