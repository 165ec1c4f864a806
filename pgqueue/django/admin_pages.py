"""The common part of the admin's pages: rows are not counted, nothing is edited, actions call the queue.

A list shows the newest rows and a link to older ones, which starts from the last row's id. So each page is one scan along
the primary key, for any number of rows. For a filter that the database refuses, such as one with NUL in it, the page
shows a message and an empty list. If an action fails for one row, it continues with the others. Where the project has the dashboard
in its addresses, each page leads to the page of the same thing there.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import DatabaseError, DataError, connections, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from pgqueue.django import conf
from pgqueue.django.admin_show import as_moment, breakable
from pgqueue.errors import PgQueueError
from pgqueue.store.audit import because
from pgqueue.store.jobs.refusals import in_one_line

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin

OLDER_THAN = "id__lt"
BACK = "_pgqueue_back"
PAGE = 100
DASHBOARD = ("overview", "alerts", "workflows")
"""Pages of the dashboard to which each list leads."""
LENGTH = "Such as 30 (seconds), 00:10:00 or 1 00:00:00 (a day)."


class UncountedPaginator(ChangeList):
    """A list of one page, with the rows of its admin's ``listed``."""

    model_admin: "ReadOnlyAdmin"
    is_a_part = False
    is_older = False
    newest_link = ""
    older_link: str | None = None

    def get_results(self, request: HttpRequest) -> None:
        """Read the page; count only its rows."""
        try:
            with own_savepoint(self.queryset.db):
                self.result_list = self.read()
        except DataError as error:
            self.result_list = []
            messages.error(request, f"The database cannot search for this: {in_one_line(error)}")
        self.result_count = self.full_result_count = len(self.result_list)  # equal: no total is shown
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = self.multi_page = False
        self.paginator = Paginator(self.result_list, self.list_per_page)

    def read(self) -> list[Any]:
        """The rows."""
        return list(self.model_admin.listed(self.queryset))


class NewestFirst(UncountedPaginator):
    """A page of the newest rows, or of those that are older than a given one."""

    is_a_part = True

    def read(self) -> list[Any]:
        """Read one row more than the page has, to know whether there are older ones."""
        found = list(self.model_admin.listed(self.queryset)[: self.list_per_page + 1])
        shown = found[: self.list_per_page]
        self.is_older = (
            self.filter_params.pop(OLDER_THAN, None) is not None
        )  # else filters would link to it, too
        self.params.pop(OLDER_THAN, None)
        self.newest_link = self.get_query_string()
        if len(found) > len(shown):
            self.older_link = self.get_query_string({OLDER_THAN: shown[-1].pk})
        return shown


def _nobody(_: object, request: HttpRequest, obj: object = None) -> bool:  # noqa: ARG001 - Django's call
    """Answer for what no user may do: jobs are enqueued, and only actions change them."""
    return False


class ReadOnlyAdmin(ModelAdmin):
    """A model that cannot be edited; only actions change its rows."""

    list_per_page = PAGE
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    page: type[UncountedPaginator] = UncountedPaginator
    asks_why = False
    needs_row = True
    """Whether actions are on rows of the table; else on what has the selected names."""
    sections: Sequence[tuple[str | None, Sequence[str]]] = ()

    class Media:
        """The style sheet of the pages."""

        css = {"all": ["pgqueue/admin.css"]}  # noqa: RUF012 - Django's way

    has_add_permission = has_change_permission = has_delete_permission = _nobody

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:  # noqa: ANN401, ARG002 - Django's call
        """The class that reads a page of the list."""
        return self.page

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:  # noqa: ANN401 - Django's call
        """The list, with links to the dashboard."""
        links = {"pgqueue_links": _links(request, DASHBOARD)}
        return super().changelist_view(request, {**(extra_context or {}), **links})

    def listed(self, rows: QuerySet[Any]) -> Any:  # noqa: ANN401 - a query set, or a list of instances
        """The rows for a list: without the fields that only the page of one row shows."""
        return rows

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:  # noqa: ANN401 - an instance of the model
        """A row by its key; None: there is none, or no row can have such a key."""
        if not self.needs_row:
            rows = self.listed(self.model.objects.none())
            return next((row for row in rows if row.pk == object_id), None)
        return None if "\x00" in object_id else super().get_object(request, object_id, from_field)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ANN401, ARG002 - Django's call
        """The sections of the page of one row."""
        return [(title, {"fields": list(fields)}) for title, fields in self.sections]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:  # noqa: ANN401, ARG002 - Django's call
        """All fields of a row; none where one is added."""
        return [] if obj is None else [field for _, fields in self.sections for field in fields]

    def buttons(self, obj: Any) -> Mapping[str, str]:  # noqa: ANN401, ARG002 - an instance of the model
        """The actions that apply to this row, with the labels of their buttons."""
        return {}

    def on_dashboard(self, obj: Any) -> str:  # noqa: ANN401 - an instance of the model
        """The page of the dashboard that shows this row: its path, and what follows."""
        return f"{self.opts.model_name}?{urlencode({'name': obj.pk})}"

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Django's call
        """The page; what the queue refuses, such as what another user did meanwhile, is told on the list."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except PgQueueError as error:
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(list_address(self.model))

    def render_change_form(  # noqa: PLR0917 - Django's call
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,  # noqa: FBT001, FBT002 - Django's call
        change: bool = False,  # noqa: FBT001, FBT002 - Django's call
        form_url: str = "",
        obj: Any = None,  # noqa: ANN401 - an instance of the model
    ) -> HttpResponse:
        """The page of one row, with a button for each action that applies and is allowed."""
        allowed = self.get_actions(request)
        wanted = {} if obj is None else self.buttons(obj)
        context["pgqueue_actions"] = [(name, label) for name, label in wanted.items() if name in allowed]
        context["pgqueue_links"] = _links(request, [] if obj is None else [self.on_dashboard(obj)])
        context["pgqueue_back"] = BACK
        context["pgqueue_asks_why"] = self.asks_why
        return super().render_change_form(request, context, add, change, form_url, obj)

    def response_action(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        *args: Any,  # noqa: ANN401 - Django 6.1 has more
        **kwargs: Any,  # noqa: ANN401 - Django 6.1 has more
    ) -> HttpResponse | None:
        """Run an action; after an action on the page of one row, return to that page."""
        if not self._may_be_selected(request.POST.getlist(ACTION_CHECKBOX_NAME)):
            self.message_user(request, "Select rows of the list.", messages.ERROR)
            return HttpResponseRedirect(list_address(self.model))
        response = super().response_action(request, queryset, *args, **kwargs)
        if BACK in request.POST and isinstance(response, HttpResponseRedirect):
            return HttpResponseRedirect(address(self.model, request.POST[ACTION_CHECKBOX_NAME]))
        return response

    def _may_be_selected(self, keys: Iterable[str]) -> bool:
        try:
            for key in keys:
                self.opts.pk.to_python(key)
        except ValidationError:
            return False
        return True

    def selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> Iterable[Any]:
        """What an action is on."""
        if self.needs_row:
            return queryset
        return [self.model(pk=name) for name in request.POST.getlist(ACTION_CHECKBOX_NAME)]

    def act(
        self,
        request: HttpRequest,
        rows: Iterable[Any],
        act: Callable[[Any], str | None],
        refused: str,
    ) -> None:
        """Act on each row, record it in the admin's log, and show how many rows had which outcome.

        Args:
            request: the user's request.
            rows: the rows to act on.
            act: acts on one row; returns its outcome, like "retried", or None if the row was not changed.
            refused: why a row may not be changed, for the message.
        """
        outcomes: Counter[str | None] = Counter()
        failures: list[Exception] = []
        try:
            chosen = list(rows)
        except DataError as error:  # the database refuses the list's filter
            self.message_user(request, in_one_line(error), messages.ERROR)
            return
        for row in chosen:
            try:
                with own_savepoint(conf.read().alias):
                    done = act(row)
            except (DatabaseError, PgQueueError) as error:
                failures.append(error)
                continue
            outcomes[done] += 1
            if done is not None:
                self.log_change(request, row, f"{capfirst(done)}.")
        not_changed = outcomes.pop(None, 0)
        for done, count in outcomes.items():
            self.message_user(request, f"{self._counted(count)} {done}.", messages.SUCCESS)
        if not_changed:
            text = f"{self._counted(not_changed)} not changed: {refused}."
            self.message_user(request, text, messages.WARNING)
        if failures:
            text = f"{self._counted(len(failures))} failed: {in_one_line(failures[-1])}"
            self.message_user(request, text, messages.ERROR)

    def _counted(self, count: int) -> str:
        return f"{count} {self.opts.verbose_name if count == 1 else self.opts.verbose_name_plural}"


def show_refusal(form: Any, said: str) -> None:  # noqa: ANN401 - a form
    """Show what the queue refuses at the field that it names."""
    named = re.match(r"(\w+)=", said)
    form.add_error(named[1] if named and named[1] in form.fields else None, ValidationError(said))


def with_facts(rows: Iterable[Any], name: str, facts: Mapping[Any, object]) -> list[Any]:
    """The rows of which the queue says something, each with that as an attribute of this name."""
    found = [row for row in rows if row.pk in facts]
    for row in found:
        setattr(row, name, facts[row.pk])
    return found


def column(description: str, show: Callable[[Any], object]) -> Any:  # noqa: ANN401 - a method of an admin
    """A column of a list, or a field of the page of one row: what ``show`` makes of the row."""

    @admin.display(description=description)
    def shown(_: object, row: object) -> object:
        return show(row)

    return shown


def moment(field: str, description: str) -> Any:  # noqa: ANN401 - a method of an admin
    """A field of the page of one row that shows a moment to the second."""
    return column(description, lambda row: as_moment(getattr(row, field)))


def may(permission: str) -> Any:  # noqa: ANN401 - a method of an admin
    """Django's question whether a user may do something: those may who have this permission."""

    def allowed(_: object, request: HttpRequest, obj: object = None) -> bool:  # noqa: ARG001 - Django's call
        return allows(request, permission)

    return allowed


def action(label: str, permission: str, do: Callable[[Any, str], str | None], refused: str = "") -> Any:  # noqa: ANN401 - a method of an admin
    """An action on each selected row.

    Args:
        label: what it does, with a place for what the rows are called: ``Retry selected {}``.
        permission: who may do it: those for whom ``has_..._permission`` says so.
        do: gets the row and the user's name; returns the outcome, or None if the row was not changed.
        refused: why a row may not be changed.
    """

    @admin.action(description=label.format("%(verbose_name_plural)s"), permissions=[permission])
    def run(self: ReadOnlyAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        by = request.user.get_username()
        with because(request.POST.get("why", "").strip() or None):
            self.act(request, self.selected(request, queryset), lambda row: do(row, by), refused)

    return run


def allows(request: HttpRequest, permission: str) -> bool:
    """Whether the user has one of pgqueue's permissions."""
    user: Any = request.user
    return bool(user.has_perm(f"pgqueue.{permission}"))


def address(model: type[Model], pk: int | str | UUID) -> str:
    """The address of the page of one row."""
    try:
        return reverse(f"admin:pgqueue_{model.__name__.lower()}_change", args=[quote(pk)])
    except NoReverseMatch:  # a queue whose name is empty has no page
        return list_address(model)


def own_savepoint(alias: str) -> AbstractContextManager[object]:
    """A block that is a savepoint if the request is in a transaction, so that its failure does not abort that."""
    return transaction.atomic(using=alias) if connections[alias].in_atomic_block else nullcontext()


def list_address(model: type[Model]) -> str:
    """The address of the list."""
    return reverse(f"admin:pgqueue_{model.__name__.lower()}_changelist")


def filter_link(field: str, value: str, where: str = "", text: str | None = None) -> SafeString:
    """A link to the list, filtered by a value."""
    return format_html('<a href="{}?{}">{}</a>', where, urlencode({field: value}), text or breakable(value))


def _links(request: HttpRequest, pages: Iterable[str]) -> list[tuple[str, str]]:
    """Return the name and the address of pages of the dashboard; none where it has no address, or the user may not look at it."""
    if not allows(request, "view_job"):
        return []
    try:
        first = reverse("pgqueue_dashboard", kwargs={"rest": ""})
    except NoReverseMatch:
        return []
    return [(page.partition("?")[0].partition("/")[0], f"{first}{page}") for page in pages]
