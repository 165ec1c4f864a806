"""The app for ``INSTALLED_APPS``: it finds the tasks, and has Django check the settings."""

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.db.backends.signals import connection_created
from django.utils.module_loading import autodiscover_modules


class PgQueueConfig(AppConfig):
    """``"pgqueue.django"`` in ``INSTALLED_APPS``."""

    name = "pgqueue.django"
    label = "pgqueue"
    verbose_name = "Job queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import each app's ``tasks.py``, so that its tasks are registered in web servers and workers."""
        from pgqueue.django import checks, recycling  # noqa: PLC0415 - Django's models may be imported from now on

        register(checks.check_settings, checks.TAG)
        register(checks.check_database, checks.TAG)
        register(checks.check_tasks, checks.TAG)
        register(checks.check_schema, Tags.database)
        connection_created.connect(recycling.remember, dispatch_uid="pgqueue")
        autodiscover_modules("tasks")
