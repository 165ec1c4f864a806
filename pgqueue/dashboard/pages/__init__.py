"""The pages of the dashboard and what can be done on them: a file each. A new page is a file, its template, and its rows here."""

from pgqueue.dashboard.page import Page, PageAction
from pgqueue.dashboard.pages import (
    alerts,
    audit,
    compare,
    dead,
    job,
    jobs,
    limits,
    operation,
    overview,
    queues,
    schedules,
    store,
    tasks,
    workers,
    workflows,
)

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    tasks.PAGE,
    compare.PAGE,
    *queues.PAGES,
    jobs.PAGE,
    *job.PAGES,
    dead.PAGE,
    workers.PAGE,
    *schedules.PAGES,
    alerts.PAGE,
    *workflows.PAGES,
    *limits.PAGES,
    audit.PAGE,
    store.PAGE,
    operation.PAGE,
)
ACTIONS: tuple[PageAction, ...] = (
    *queues.ACTIONS,
    *jobs.ACTIONS,
    *job.ACTIONS,
    *dead.ACTIONS,
    *workers.ACTIONS,
    *schedules.ACTIONS,
    *alerts.ACTIONS,
    *workflows.ACTIONS,
    *limits.ACTIONS,
    *operation.ACTIONS,
)
