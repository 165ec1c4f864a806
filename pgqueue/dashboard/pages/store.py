"""How the tables stand: sizes, dead rows, what holds vacuum back, the partitions of the history."""

from pgqueue.dashboard.page import Content, Page
from pgqueue.dashboard.visit import Visit


def read(visit: Visit) -> Content:
    """The health of the store."""
    return {"store": visit.queue.insight.store()}


PAGE = Page(name="store", path="/store", title="Store", read=read, place=100, every=10)
