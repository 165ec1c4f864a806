"""The forms of the admin's page of queues: a reason beside actions, and settings with the checks of ``queue.control``."""

import re
from typing import Any

from django import forms
from django.contrib.admin.helpers import ActionForm
from django.core.exceptions import ValidationError

from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import Queue
from pgqueue.errors import PgQueueError
from pgqueue.values.queues.settings import WHEN_FULL, QueueSettings

SETTINGS = QueueSettings.__struct_fields__
COMPARED: dict[str, Any] = {"required": False, "show_hidden_initial": True}
"""What was shown comes back with the form: what another operator stores meanwhile is not taken for a change."""
LENGTH = "Such as 30 (seconds), 00:10:00 or 1 00:00:00 (a day)."


class Reason(ActionForm):
    """Beside the list of actions: why a queue is paused or drained."""

    why = forms.CharField(required=False, label="Why", max_length=1000)


class SettingsForm(forms.ModelForm):  # type: ignore[type-arg]  # Django's classes take no parameter at run time
    """What holds for the jobs of a queue where neither their enqueue nor their task says it. Empty: the queue does not say it."""

    priority = forms.IntegerField(
        **COMPARED, help_text="From -100 to 100; a job with a higher one runs sooner."
    )
    max_attempts = forms.IntegerField(**COMPARED, help_text="A job is dead after this many failed attempts.")
    timeout = forms.DurationField(**COMPARED, help_text=f"How long an attempt may take. {LENGTH}")
    keep_history = forms.NullBooleanField(**COMPARED, help_text="No: jobs that succeed leave no record.")
    keep_dead = forms.DurationField(**COMPARED, help_text=f"How long dead jobs are kept. {LENGTH}")
    backlog = forms.IntegerField(**COMPARED, help_text="From how many ready jobs on the queue is full.")
    when_full = forms.TypedChoiceField(
        **COMPARED,
        choices=[("", "not set"), *((one, one) for one in WHEN_FULL)],
        empty_value=None,
        help_text="Refuse: an enqueue to a full queue fails. Warn, and not set: it logs a warning.",
    )
    ageing = forms.DurationField(**COMPARED, help_text=f"The wait that is worth one priority. {LENGTH}")
    ageing_to = forms.IntegerField(
        **COMPARED, help_text="The highest priority that waiting jobs get so, 1 to 100; not set: 100."
    )

    class Meta:
        """The settings."""

        model = Queue
        fields = SETTINGS

    def clean(self) -> dict[str, Any]:
        """Check what ``queue.control.set`` checks; an error is shown at the field that it names."""
        given: dict[str, Any] = super().clean() or {}
        if not self.errors:
            try:
                QueueSettings.checked(self._changed(given))
                pairs = ("backlog", "when_full", "ageing", "ageing_to")
                QueueSettings(**{name: given[name] for name in pairs}).require_pairs()
            except PgQueueError as error:
                named = re.match(r"(\w+)=", str(error))
                field = named[1] if named and named[1] in self.fields else None
                self.add_error(field, ValidationError(str(error)))
        return given

    def store(self, by: str) -> None:
        """Store the settings that were changed; the others stay as they are now."""
        changed = self._changed(self.cleaned_data)
        said = {name: value for name, value in changed.items() if value is not None}
        project_queue().control.set(self.instance.name, unset=[*changed.keys() - said.keys()], by=by, **said)

    def _changed(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: given[name] for name in self.changed_data}
