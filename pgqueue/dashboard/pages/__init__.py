"""The pages of the dashboard and what can be done on them: related ones in a file. A new page is a file, its template, and its rows here."""

from pgqueue.dashboard.page import Page, PageAction
from pgqueue.dashboard.pages import (
    alerts,
    audit,
    compare,
    enqueue,
    job,
    jobs,
    limits,
    many_jobs,
    overview,
    queues,
    runs,
    schedule_forms,
    schedules,
    store,
    tasks,
    workers,
    workflows,
)

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    compare.PAGE,
    *tasks.PAGES,
    *queues.PAGES,
    *jobs.PAGES,
    *job.PAGES,
    *workers.PAGES,
    *schedules.PAGES,
    *alerts.PAGES,
    *workflows.PAGES,
    *runs.PAGES,
    *limits.PAGES,
    *audit.PAGES,
    store.PAGE,
)
ACTIONS: tuple[PageAction, ...] = (
    *queues.ACTIONS,
    *enqueue.ACTIONS,
    *many_jobs.ACTIONS,
    *job.ACTIONS,
    *workers.ACTIONS,
    *schedules.ACTIONS,
    *schedule_forms.ACTIONS,
    *alerts.ACTIONS,
    *workflows.ACTIONS,
    *runs.ACTIONS,
    *limits.ACTIONS,
    *audit.ACTIONS,
)
