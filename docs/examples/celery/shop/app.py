"""The Celery app and its settings."""

import os
from datetime import timedelta

from celery import Celery
from celery.schedules import crontab

app = Celery("shop", broker=os.environ["BROKER_URL"], backend=os.environ.get("RESULT_BACKEND"))
app.conf.update(
    accept_content=["json"],
    result_serializer="json",
    task_serializer="json",
    task_acks_late=True,
    task_default_queue="shop",
    task_routes={"shop.tasks.send_*": {"queue": "mail"}},
    task_time_limit=300,
    timezone="Europe/London",
    worker_prefetch_multiplier=1,
)
app.conf.beat_schedule = {
    "report": {
        "task": "shop.tasks.report",
        "schedule": crontab(minute=30, hour=2, day_of_week="mon-fri"),
        "args": ("yesterday",),
    },
    "empty carts": {
        "task": "shop.tasks.empty_carts",
        "schedule": timedelta(minutes=15),
        "kwargs": {"older_than_days": 30},
    },
}
app.autodiscover_tasks(["shop"])
