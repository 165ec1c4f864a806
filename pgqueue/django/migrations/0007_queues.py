"""Settings of queues."""

from django.db import migrations

from pgqueue.django.operations import Revision


class Migration(migrations.Migration):
    """Install it."""

    dependencies = [("pgqueue", "0006_flows")]  # noqa: RUF012 - as Django has it
    operations = [  # noqa: RUF012 - as Django has it
        Revision("0007", before="0006"),
        migrations.AlterModelOptions(
            name="queue",
            options={
                "managed": False,
                "default_permissions": ("view", "change"),
                "permissions": (("pause_queue", "Can pause, drain and resume queue"),),
            },
        ),
        migrations.AlterModelOptions(
            name="worker",
            options={
                "managed": False,
                "default_permissions": ("view",),
                "permissions": (("steer_worker", "Can drain, resume, stop and restart worker"),),
            },
        ),
    ]
