"""What a job's end concerns; notes of attempts, signals, flows."""

from django.db import migrations

from pgqueue.django.operations import Revision


class Migration(migrations.Migration):
    """Install it."""

    dependencies = [("pgqueue", "0005_health")]  # noqa: RUF012 - as Django has it
    operations = [Revision("0006", before="0005")]  # noqa: RUF012 - as Django has it
