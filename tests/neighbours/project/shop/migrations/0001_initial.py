"""The app's only table."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Make it."""

    initial = True
    operations = [  # noqa: RUF012 - as Django has it
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("paid", models.BooleanField(default=False)),
                ("note", models.TextField(default="")),
            ],
        )
    ]
