"""The alerts: how each stands and what the last look found. They are silenced by ``pgqueue alerts`` and ``queue.alerts``."""

from pgqueue.dashboard.page import Content, Page
from pgqueue.dashboard.visit import Visit


def read(visit: Visit) -> Content:
    """Every alert, active ones first."""
    return {"alerts": sorted(visit.queue.alerts.list(), key=lambda one: (not one.active, one.name))}


PAGE = Page(name="alerts", path="/alerts", title="Alerts", read=read, place=65)
