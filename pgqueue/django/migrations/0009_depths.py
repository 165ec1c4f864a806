"""How deep queues are, over time."""

from django.db import migrations

from pgqueue.django.operations import Revision


class Migration(migrations.Migration):
    """Install it."""

    dependencies = [("pgqueue", "0008_insight")]  # noqa: RUF012 - as Django has it
    operations = [Revision("0009", before="0008")]  # noqa: RUF012 - as Django has it
