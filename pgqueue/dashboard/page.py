"""What a page and an action of the dashboard are made of. Each file of ``pages/`` has one or several.

A page reads a queue and returns values: its template shows them to people, and ``/api`` with the page's path to programs. An
action first asks, on a page of its own, and is done when its form is sent.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from pgqueue.dashboard.access import Right

Content: TypeAlias = Mapping[str, Any]
"""What a page shows, by name: values that a template and JSON can show, already without secrets."""


class Download(msgspec.Struct, frozen=True):
    """A file that a page is, instead of values.

    Attributes:
        name: what the browser calls it.
        text: what is in it, already without secrets.
    """

    name: str
    text: str


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page.

    Attributes:
        name: of the page, of its endpoint, and of its template.
        path: where it is, as Werkzeug's rules have it: ``/jobs/<int:job_id>``.
        title: what the browser and the navigation call it.
        read: asks the queue for what the page shows; the placeholders of the path are its keyword arguments.
        place: its place in the navigation; None: it is not in it.
        under: the page of the navigation under which it is; None: its own.
        every: after how many seconds a page that is in front of a person is asked for again; None: it does not change.
    """

    name: str
    path: str
    title: str
    read: Callable[..., Content | Download]
    place: int | None = None
    under: str | None = None
    every: int | None = 5


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may type or choose with an action.

    Attributes:
        name: of the form's field.
        label: what it is called.
        kind: of the form's field.
        value: what is there at first.
        hint: more about it.
        required: whether it must be given.
    """

    name: str
    label: str
    kind: Literal["text", "number", "checkbox"] = "text"
    value: str = ""
    hint: str = ""
    required: bool = False


class ActionQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked before an action is done.

    Attributes:
        title: what would be done: ``Cancel job 42?``.
        text: what that means.
        button: the word on the button.
        back: where a person goes who does not want it.
        destroys: whether it cannot be undone.
        fields: what can be given.
        facts: names and values that help to decide.
        groups: heads, and rows, of a table of what it would be done to.
        jobs: some of the jobs to which it would be done.
        possible: False: there is nothing to do it to.
    """

    title: str
    text: str
    button: str
    back: str
    destroys: bool = True
    fields: Sequence[Field] = ()
    facts: Sequence[tuple[str, object]] = ()
    groups: tuple[Sequence[str], Sequence[Sequence[object]]] | None = None
    jobs: Sequence[Any] = ()
    possible: bool = True


class ActionResult(msgspec.Struct, frozen=True):
    """What an action did.

    Attributes:
        said: a sentence for the person.
        to: the page that is shown next.
        well: False: it was not done, or not wholly.
    """

    said: str
    to: str
    well: bool = True


class PageAction(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person can do.

    Attributes:
        name: of its endpoint.
        path: where it asks, and where its form is sent.
        right: what the person needs.
        ask: makes the question; the placeholders of the path are its keyword arguments.
        do: does it.
        under: the page of the navigation under which it is.
    """

    name: str
    path: str
    right: Right
    ask: Callable[..., ActionQuestion]
    do: Callable[..., ActionResult]
    under: str
