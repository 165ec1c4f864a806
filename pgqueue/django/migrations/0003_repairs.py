"""Bounds on what a job may hold, and the repairs that need the schema."""

from django.db import migrations

from pgqueue.django.operations import Revision


class Migration(migrations.Migration):
    """Install it."""

    dependencies = [("pgqueue", "0002_pipeline")]  # noqa: RUF012 - as Django has it
    operations = [Revision("0003", before="0002")]  # noqa: RUF012 - as Django has it
