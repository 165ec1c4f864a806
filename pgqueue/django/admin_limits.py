"""The admin's pages of limits and of the weights of shares, each with a form.

The page of limits shows what each says, how many jobs run and wait under it, and who set it. That of shares shows how many jobs
of each start for one of a share of weight 1. What a limit or a weight may be is checked by ``Limit``, ``Rate`` and
``queue.control.limits``; the pages show their errors.
"""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest

from pgqueue.django.admin_pages import PAGE, ReadOnlyAdmin, action, column, may, moment
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import Limit, Share
from pgqueue.errors import InvalidOption, PgQueueError
from pgqueue.store.limits import limit_control
from pgqueue.values.jobs.options import check_number
from pgqueue.values.limits import limit as limits
from pgqueue.values.limits.status import LimitStatus
from pgqueue.values.limits.task_limits import share_key
from pgqueue.values.queues.served_queues import WEIGHTS

MOST = ("most",)
RATE = ("rate", "apart", "burst")
NAMES = " "
"""With this the names of their rows begin."""


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


def _unset(limit: Limit, by: str) -> str:
    project_queue().control.limits.unset(limit.name, by=by)
    return "unset"


@admin.register(Limit)
class LimitAdmin(ReadOnlyAdmin):
    """The limits that tasks declare or an operator has set, whether or not a worker has stored them yet."""

    list_display = ("name", "says", "running", "waiting", "set_when", "set_by")
    actions = ("unset",)
    needs_row = False
    form = LimitForm
    sections = (
        (None, ("name", "says", "code_says", "running", "waiting", "lost")),
        ("Set by an operator", ("set_when", "set_by")),
    )
    set_when = moment("set_at", "set at")
    says = column("says", lambda limit: limit.status.numbers.said)
    code_says = column("the code says", lambda limit: limit.declared or "nothing")
    running = column("running", lambda limit: f"{limit.status.running:,}")
    lost = column("of them held by lost workers", lambda limit: f"{limit.status.lost:,}")
    waiting = column(
        "waiting", lambda limit: f"{'about ' if limit.status.estimated else ''}{limit.status.waiting:,}"
    )
    has_add_permission = may("add_limit")
    has_change_permission = may("change_limit")
    unset = action("Unset selected {}", "change", _unset)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ANN401 - Django's call
        """What there is to see, and the numbers that the limit has, for those who may change them."""
        if obj is None:
            return [(None, {"fields": ("name", *MOST, *RATE)})]
        shown = super().get_fieldsets(request, obj)
        if not self.has_change_permission(request, obj):
            return shown
        return [*shown, ("New numbers", {"fields": RATE if obj.most is None else MOST})]

    def save_model(self, request: HttpRequest, obj: Limit, form: Any, change: Any) -> None:  # noqa: ANN401, ARG002 - Django's call
        """Store the numbers, if there are new ones."""
        if form.changed_data:
            project_queue().control.limits.set(obj.name, form.numbers, by=request.user.get_username())

    def listed(self, rows: QuerySet[Any]) -> list[Limit]:  # noqa: ARG002 - a limit needs no row
        """Every limit."""
        return [_row(one) for one in project_queue().insight.limits()]

    def buttons(self, obj: Limit) -> Mapping[str, str]:
        """One that an operator has set can be given back to the code."""
        return {"unset": "Unset"} if obj.set_at else {}


class ShareForm(forms.ModelForm):  # type: ignore[type-arg]  # Django's classes take no parameter at run time
    """The values of a share's ``fair_by`` arguments, and its weight."""

    share = forms.JSONField(
        initial=dict,
        help_text='The value of each fair_by argument of its task, such as {"tenant": "acme"}.',
    )
    weight = forms.IntegerField(
        help_text="How many of its jobs start for one of a share of weight 1: 1 to 1,000."
    )

    class Meta:
        """The fields are those of the form."""

        model = Share
        fields = ()

    def clean(self) -> dict[str, Any]:
        """Check the values and the weight."""
        given: dict[str, Any] = super().clean() or {}
        if not self.errors:
            try:
                check_number("weight", given["weight"], WEIGHTS)
                if "share" in given:
                    share_key(given["share"])
            except PgQueueError as error:
                raise ValidationError(str(error)) from error
        return given


def _forget(share: Share, by: str) -> str:
    project_queue().database.run(limit_control.weigh(share.name, None, by=by))
    return "given weight 1"


@admin.register(Share)
class ShareAdmin(ReadOnlyAdmin):
    """The shares that have a weight other than 1."""

    list_display = ("share", "weighs", "set_when", "set_by")
    actions = ("forget",)
    form = ShareForm
    sections = ((None, ("share", "weighs", "set_when", "set_by")),)
    share = column("share", lambda share: project_queue().redaction.text(str(share)))
    weighs = column("weight", lambda share: f"{share.most:,}")
    set_when = moment("set_at", "set at")
    has_add_permission = may("add_share")
    has_change_permission = may("change_share")
    forget = action("Give selected {} weight 1", "change", _forget)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ANN401 - Django's call
        """What there is to see, and the weight for those who may change it."""
        if obj is None:
            return [(None, {"fields": ("share", "weight")})]
        shown = super().get_fieldsets(request, obj)
        changes = self.has_change_permission(request, obj)
        return [*shown, ("New weight", {"fields": ("weight",)})] if changes else shown

    def save_model(self, request: HttpRequest, obj: Share, form: Any, change: Any) -> None:  # noqa: ANN401 - Django's call
        """Store the weight."""
        by, weight = request.user.get_username(), form.cleaned_data["weight"]
        if change:
            project_queue().database.run(limit_control.weigh(obj.name, weight, by=by))
        else:
            values = form.cleaned_data["share"]
            project_queue().control.limits.weigh(values, weight, by=by)
            obj.name = f"{NAMES}{values}"  # for the admin's log

    def listed(self, rows: QuerySet[Any]) -> Any:  # noqa: ANN401 - a query set
        """The rows of shares; the others are limits."""
        return rows.filter(name__startswith=NAMES).order_by("name")[:PAGE]

    def selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002 - as the base
        """The selected shares; a limit is none."""
        return queryset.filter(name__startswith=NAMES)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:  # noqa: ANN401 - an instance of the model
        """A share by its key."""
        return super().get_object(request, object_id, from_field) if object_id.startswith(NAMES) else None

    def buttons(self, obj: Share) -> Mapping[str, str]:  # noqa: ARG002 - all of them
        """Each can have weight 1 again."""
        return {"forget": "Weight 1 again"}

    def on_dashboard(self, obj: Share) -> str:  # noqa: ARG002 - it has no page there
        """The page of limits."""
        return "limits"


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
