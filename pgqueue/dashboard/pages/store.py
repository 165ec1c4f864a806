"""How the store does: what holds vacuum back, the tables, the indices. Those that are small are folded."""

from typing import Final

from pgqueue.dashboard.page import Content, Page, Visit

SMALL: Final = 10**6
"""Bytes. A table or an index of less is folded."""


def read(visit: Visit) -> Content:
    """The tables and indices, the largest first."""
    store = visit.queue.insight.store()
    return {"store": store, "small": SMALL}


PAGE = Page(name="store", path="/store", title="Store", read=read, place=100, every=10)
