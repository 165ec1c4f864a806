"""What a job's end concerns; notes of attempts, signals, flows."""

from django.db import migrations

from pgqueue.django.operations import Revision


class Migration(migrations.Migration):
    """Install it."""

    dependencies = [("pgqueue", "0005_health")]  # noqa: RUF012 - as Django has it
    operations = [  # noqa: RUF012 - as Django has it
        Revision("0006", before="0005"),
        migrations.AlterModelOptions(
            name="schedule",
            options={
                "managed": False,
                "permissions": (
                    ("pause_schedule", "Can pause and resume schedule"),
                    ("fire_schedule", "Can fire schedule"),
                ),
            },
        ),
    ]
