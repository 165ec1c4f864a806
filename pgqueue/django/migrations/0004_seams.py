"""Columns of a job for later features: what is sent along with it, and what it waits for."""

from django.db import migrations

from pgqueue.django.operations import Revision


class Migration(migrations.Migration):
    """Install it."""

    dependencies = [("pgqueue", "0003_repairs")]  # noqa: RUF012 - as Django has it
    operations = [Revision("0004", before="0003")]  # noqa: RUF012 - as Django has it
