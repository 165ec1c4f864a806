"""What workers say of their health; schedules."""

from django.db import migrations, models

from pgqueue.django.models import table
from pgqueue.django.operations import Revision


class Migration(migrations.Migration):
    """Install it."""

    dependencies = [("pgqueue", "0004_seams")]  # noqa: RUF012 - as Django has it
    operations = [  # noqa: RUF012 - as Django has it
        Revision("0005", before="0004"),
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
                "default_permissions": ("view",),
                "permissions": (
                    ("pause_schedule", "Can pause and resume schedule"),
                    ("fire_schedule", "Can fire schedule"),
                ),
            },
        ),
    ]
