"""What the data pipeline needs of the schema; no model changes."""

from django.db import migrations

from pgqueue.django.operations import Revision


class Migration(migrations.Migration):
    """Install it."""

    dependencies = [("pgqueue", "0001_initial")]  # noqa: RUF012 - as Django has it
    operations = [Revision("0002", before="0001")]  # noqa: RUF012 - as Django has it
