"""What the tasks write to."""

from django.db import models


class Order(models.Model):
    """An order; tasks leave their marks in the note."""

    id: "models.BigAutoField[int, int]" = models.BigAutoField(primary_key=True)
    paid: "models.BooleanField[bool, bool]" = models.BooleanField(default=False)
    note: "models.TextField[str, str]" = models.TextField(default="")

    def __str__(self) -> str:
        return f"order {self.pk}"
