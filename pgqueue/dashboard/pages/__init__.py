"""The pages of the dashboard and what can be done on them: related ones in a file. A new page is a file, its template, and its rows here."""

from pgqueue.dashboard.page import Page, PageAction
from pgqueue.dashboard.pages import (
    alerts,
    audit,
    enqueue,
    job,
    jobs,
    limits,
    overview,
    queues,
    schedules,
    workers,
    workflows,
)

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    *queues.PAGES,
    *jobs.PAGES,
    *job.PAGES,
    workers.PAGE,
    *schedules.PAGES,
    alerts.PAGE,
    *workflows.PAGES,
    *limits.PAGES,
    *audit.PAGES,
)
ACTIONS: tuple[PageAction, ...] = (
    *queues.ACTIONS,
    *enqueue.ACTIONS,
    *jobs.ACTIONS,
    *job.ACTIONS,
    *workers.ACTIONS,
    *schedules.ACTIONS,
    *alerts.ACTIONS,
    *workflows.ACTIONS,
    *limits.ACTIONS,
    *audit.ACTIONS,
)
