"""Orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Make their table."""

    initial = True
    operations = [  # noqa: RUF012 - as Django has it
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("customer", models.CharField(max_length=100)),
                ("confirmed_at", models.DateTimeField(null=True)),
            ],
        ),
    ]
