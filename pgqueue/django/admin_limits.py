"""The admin's page of limits: what each says, how many jobs run and wait under it, who set it; a form for its numbers.

What a limit may say is checked by ``Limit``, ``Rate`` and ``queue.control.limits``; the page shows their errors.
"""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseRedirect

from pgqueue.django.admin_pages import ReadOnlyAdmin, UncountedPaginator, allows, list_address, moment
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import Limit
from pgqueue.errors import InvalidOption, PgQueueError
from pgqueue.values.limits import limit as limits
from pgqueue.values.limits.status import LimitStatus

MOST = ("most",)
RATE = ("rate", "apart", "burst")


class LimitForm(forms.ModelForm):  # type: ignore[type-arg]  # Django's classes take no parameter at run time
    """The numbers of a limit: of one at once, ``most``; of a rate, one of ``rate`` and ``apart``."""

    name = forms.CharField(initial=limits.QUEUE, help_text="queue:NAME limits a queue as a whole.")
    most = forms.IntegerField(required=False, help_text="How many jobs of a key run at once.")
    rate = forms.CharField(
        required=False, help_text="How many jobs of a key start, such as 100/minute, 5/second or 1/30s."
    )
    apart = forms.DurationField(
        required=False,
        label="Or exactly apart",
        help_text="The time between two starts, such as 2 (seconds).",
    )
    burst = forms.IntegerField(
        required=False, help_text="How many start at once after a pause, of a rate. Empty: 1."
    )

    class Meta:
        """The fields are those of the form."""

        model = Limit
        fields = ()

    def clean(self) -> dict[str, Any]:
        """Check the numbers."""
        given: dict[str, Any] = super().clean() or {}
        if not self.errors and self.changed_data:
            try:
                self.numbers = _numbers(given)
            except PgQueueError as error:
                raise ValidationError(str(error)) from error
        return given


@admin.register(Limit)
class LimitAdmin(ReadOnlyAdmin):
    """The limits that tasks declare or an operator has set, whether or not a worker has stored them yet."""

    list_display = ("name", "says", "running", "waiting", "set_when", "set_by")
    actions = ("unset",)
    form = LimitForm
    page = UncountedPaginator
    set_when = moment("set_at", "set at")
    sections = (
        (None, ("name", "says", "code_says", "running", "waiting", "lost")),
        ("Set by an operator", ("set_when", "set_by")),
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Who may limit a queue as a whole."""
        return allows(request, "add_limit")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401, ARG002 - Django's call
        """Who may change the numbers."""
        return allows(request, "change_limit")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ANN401 - Django's call
        """What there is to see, and the numbers that the limit has, for those who may change them."""
        if obj is None:
            return [(None, {"fields": ("name", *MOST, *RATE)})]
        shown = super().get_fieldsets(request, obj)
        if not self.has_change_permission(request, obj):
            return shown
        return [*shown, ("New numbers", {"fields": RATE if obj.most is None else MOST})]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:  # noqa: ANN401 - Django's call
        """All but the numbers."""
        return [] if obj is None else super().get_readonly_fields(request, obj)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Django's call
        """The page; what the queue refuses is shown on the list."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except InvalidOption as error:
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(list_address(self.model))

    def save_model(self, request: HttpRequest, obj: Limit, form: Any, change: Any) -> None:  # noqa: ANN401, ARG002 - Django's call
        """Store the numbers, if there are new ones."""
        if form.changed_data:
            project_queue().control.limits.set(obj.name, form.numbers, by=request.user.get_username())

    def listed(self, rows: QuerySet[Any]) -> list[Limit]:  # noqa: ARG002 - a limit needs no row
        """Every limit."""
        return [_row(one) for one in project_queue().insight.limits()]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Limit | None:  # noqa: ARG002 - Django's call
        """A limit by its name, with a row or without."""
        return next((row for row in self.listed(Limit.objects.none()) if row.name == object_id), None)

    def buttons(self, obj: Limit) -> Mapping[str, str]:
        """One that an operator has set can be given back to the code."""
        return {"unset": "Unset"} if obj.set_at else {}

    @admin.action(description="Unset selected %(verbose_name_plural)s", permissions=["change"])
    def unset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:  # noqa: ARG002 - a limit needs no row
        """Have them say again what the code says; those that no code declares are removed."""

        def unset(limit: Limit) -> str:
            project_queue().control.limits.unset(limit.name, by=request.user.get_username())
            return "unset"

        chosen = [Limit(name=name) for name in request.POST.getlist(ACTION_CHECKBOX_NAME)]
        self.act(request, chosen, unset, "")

    @admin.display(description="says")
    def says(self, limit: Limit) -> str:
        """What holds."""
        return limit.status.numbers.said

    @admin.display(description="the code says")
    def code_says(self, limit: Limit) -> str:
        """What its task declares."""
        return limit.declared or "nothing"

    @admin.display(description="running")
    def running(self, limit: Limit) -> str:
        """How many jobs run under it."""
        return f"{limit.status.running:,}"

    @admin.display(description="of them held by lost workers")
    def lost(self, limit: Limit) -> str:
        """How many of those a sweep will take over."""
        return f"{limit.status.lost:,}"

    @admin.display(description="waiting")
    def waiting(self, limit: Limit) -> str:
        """How many jobs wait under it; of a large table, an estimate."""
        return f"{'about ' if limit.status.estimated else ''}{limit.status.waiting:,}"


def _row(status: LimitStatus) -> Limit:
    most, every, burst, declared = status.numbers
    row = Limit(status.name, most, every, burst, declared, status.set_at, status.set_by)
    row.status = status
    return row


def _numbers(given: Mapping[str, Any]) -> limits.Limit | limits.Rate:
    most, rate, apart, burst = (given.get(name) for name in (*MOST, *RATE))
    rate = rate or None
    if [most, rate, apart].count(None) != 2:  # noqa: PLR2004 - one of three
        raise InvalidOption("give one of: how many at once, a rate, how far apart")
    if most is not None:
        if burst is not None:
            raise InvalidOption(f"burst={burst}: it belongs to a rate")
        return limits.Limit(most)
    return limits.Rate(rate, every=apart, burst=1 if burst is None else burst)
