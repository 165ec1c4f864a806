"""What workers measure, kept as time series; alerts; what workers say of their claims; stacks of running jobs; limits in the admin."""

from django.db import migrations, models

from pgqueue.django.fields import TimeField
from pgqueue.django.models import table
from pgqueue.django.operations import Revision


class Migration(migrations.Migration):
    """Install it."""

    dependencies = [("pgqueue", "0007_queues")]  # noqa: RUF012 - as Django has it
    operations = [  # noqa: RUF012 - as Django has it
        Revision("0008", before="0007"),
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
