"""The schema, and the models that show it to Django: they are unmanaged, so they make no tables of their own."""

from typing import Any

from django.db import migrations, models

from pgqueue.django.models import TextsField, TimeField, table
from pgqueue.django.operations import Revision

ENQUEUED: Any = (
    ("id", models.BigIntegerField(primary_key=True, serialize=False)),
    ("queue", models.TextField()),
    ("task", models.TextField()),
    ("args", models.JSONField()),
    ("priority", models.SmallIntegerField()),
    ("run_at", models.DateTimeField()),
    ("created_at", models.DateTimeField(verbose_name="enqueued at")),
    ("started_at", models.DateTimeField(null=True)),
    ("attempts", models.SmallIntegerField()),
    ("max_attempts", models.SmallIntegerField()),
    ("unique_key", models.TextField(null=True)),
    ("collisions", models.IntegerField()),
    ("worker_id", models.UUIDField(null=True, verbose_name="worker")),
    ("errors", models.JSONField(null=True)),
)


class Migration(migrations.Migration):
    """Install it."""

    initial = True
    operations = [  # noqa: RUF012 - as Django has it
        Revision("0001"),
        migrations.CreateModel(
            name="Job",
            fields=[
                *ENQUEUED,
                ("state", models.TextField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("reason", models.TextField(null=True)),
                ("result", models.JSONField(null=True)),
            ],
            options={
                "managed": False,
                "db_table": table("all_jobs"),
                "default_permissions": ("view",),
                "permissions": (("retry_job", "Can retry job"), ("cancel_job", "Can cancel job")),
            },
        ),
        migrations.CreateModel(
            name="DeadJob",
            fields=[*ENQUEUED, ("died_at", models.DateTimeField()), ("reason", models.TextField())],
            options={
                "managed": False,
                "db_table": table("dead_jobs"),
                "default_permissions": ("view", "delete"),
            },
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("paused_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "managed": False,
                "db_table": table("queues"),
                "default_permissions": ("view", "change"),
                "permissions": (("pause_queue", "Can pause, close and resume queue"),),
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("started_at", models.DateTimeField()),
                ("lease_until", models.DateTimeField()),
                ("pid", models.IntegerField(verbose_name="process")),
                ("concurrency", models.IntegerField()),
                ("idle", models.BooleanField()),
                ("host", models.TextField()),
                ("version", models.TextField()),
                ("queues", TextsField(null=True)),
            ],
            options={
                "managed": False,
                "db_table": table("workers"),
                "default_permissions": ("view",),
                "permissions": (("steer_worker", "Can make quiet, resume, stop and restart worker"),),
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("module", models.TextField(null=True)),
                ("created_at", models.DateTimeField()),
                ("task", models.TextField()),
                ("queue", models.TextField()),
                ("priority", models.SmallIntegerField()),
                ("cron", models.TextField(null=True)),
                ("every", models.DurationField(null=True)),
                ("at", models.DateTimeField(null=True)),
                ("timezone", models.TextField()),
                ("missed", models.TextField()),
                ("overlap", models.TextField()),
                ("next_at", models.DateTimeField(null=True)),
                ("paused_at", models.DateTimeField(null=True)),
                ("paused_by", models.TextField(null=True)),
                ("failed_at", models.DateTimeField(null=True)),
                ("error", models.TextField(null=True)),
            ],
            options={
                "managed": False,
                "db_table": table("schedules"),
                "permissions": (
                    ("pause_schedule", "Can pause and resume schedule"),
                    ("fire_schedule", "Can fire schedule"),
                ),
            },
        ),
        migrations.CreateModel(
            name="Limit",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("most", models.IntegerField(null=True)),
                ("every", models.BigIntegerField(null=True)),
                ("burst", models.BigIntegerField(null=True)),
                ("declared", models.TextField()),
                ("set_at", TimeField(null=True)),
                ("set_by", models.TextField(null=True)),
            ],
            options={
                "managed": False,
                "db_table": table("limits"),
                "default_permissions": ("view", "add", "change"),
            },
        ),
        migrations.CreateModel(
            name="Share",
            fields=[],
            options={"proxy": True, "default_permissions": ("view", "add", "change")},
            bases=("pgqueue.limit",),
        ),
    ]
