"""The admin's page of shares that have weights: how many jobs of each start for one of a share of weight 1.

What a weight may be is checked by ``queue.control.limits.weigh``; the page shows its errors.
"""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest

from pgqueue.django.admin_pages import PAGE, ReadOnlyAdmin, UncountedPaginator, allows, moment
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import Share
from pgqueue.errors import PgQueueError
from pgqueue.store.limits import limit_control
from pgqueue.values.jobs.options import check_number
from pgqueue.values.limits.task_limits import share_key
from pgqueue.values.queues.served_queues import WEIGHTS

NAMES = " "
"""With this the names of their rows begin."""


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


@admin.register(Share)
class ShareAdmin(ReadOnlyAdmin):
    """The shares that have a weight other than 1."""

    list_display = ("share", "weighs", "set_when", "set_by")
    actions = ("forget",)
    form = ShareForm
    page = UncountedPaginator
    set_when = moment("set_at", "set at")
    sections = ((None, ("share", "weighs", "set_when", "set_by")),)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Who may give a share a weight."""
        return allows(request, "add_share")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401, ARG002 - Django's call
        """Who may change a weight."""
        return allows(request, "change_share")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ANN401 - Django's call
        """What there is to see, and the weight for those who may change it."""
        if obj is None:
            return [(None, {"fields": ("share", "weight")})]
        shown = super().get_fieldsets(request, obj)
        return (
            [*shown, ("New weight", {"fields": ("weight",)})]
            if self.has_change_permission(request, obj)
            else shown
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:  # noqa: ANN401 - Django's call
        """All but the weight."""
        return [] if obj is None else super().get_readonly_fields(request, obj)

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

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:  # noqa: ANN401 - an instance of the model
        """A share by its key."""
        return super().get_object(request, object_id, from_field) if object_id.startswith(NAMES) else None

    def buttons(self, obj: Share) -> Mapping[str, str]:  # noqa: ARG002 - all of them
        """Each can have weight 1 again."""
        return {"forget": "Weight 1 again"}

    @admin.action(description="Give selected %(verbose_name_plural)s weight 1", permissions=["change"])
    def forget(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Have as many of their jobs start as of others."""

        def forget(share: Share) -> str:
            plan = limit_control.weigh(share.name, None, by=request.user.get_username())
            project_queue().database.run(plan)
            return "given weight 1"

        self.act(request, queryset.filter(name__startswith=NAMES), forget, "")

    @admin.display(description="share")
    def share(self, share: Share) -> str:
        """The values of its arguments; a long one or an encoded one is shown as its key."""
        return str(share)

    @admin.display(description="weight")
    def weighs(self, share: Share) -> str:
        """How many of its jobs start for one of a share of weight 1."""
        return f"{share.most:,}"
