"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    """An order; it is confirmed by a job."""

    customer = models.CharField(max_length=100)
    confirmed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        """Like ``order 42``."""
        return f"order {self.pk}"
