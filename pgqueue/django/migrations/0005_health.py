"""What workers say of their health."""

from django.db import migrations

from pgqueue.django.operations import Revision


class Migration(migrations.Migration):
    """Install it."""

    dependencies = [("pgqueue", "0004_seams")]  # noqa: RUF012 - as Django has it
    operations = [Revision("0005", before="0004")]  # noqa: RUF012 - as Django has it
