"""What the pages and actions of a dashboard are made of, and the request that they read: who asks, of which queue.

A page reads a queue and returns values: its template shows them to people, and ``/api`` with the page's path to programs. An
action first asks, on a page of its own, and is done when its form is sent. All that a page's content depends on is in its
address. Where a dashboard shows several queues, ``db`` in it says which.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
import psycopg
from werkzeug.exceptions import NotFound
from werkzeug.routing import MapAdapter
from werkzeug.wrappers import Request

from pgqueue.app.pgqueue import PgQueue
from pgqueue.dashboard.access import Right, User, form_key
from pgqueue.dashboard.database_label import DatabaseLabels
from pgqueue.dashboard.messages import Messages
from pgqueue.dashboard.shared_standings import Look, SharedStandings
from pgqueue.errors import ConnectionFailed, InvalidOption, PgQueueError
from pgqueue.values.jobs.options import LONGEST_REASON, check_text
from pgqueue.values.queues.standing import QueueStanding
from pgqueue.values.redaction import Redaction
from pgqueue.values.shards import ReplicaStatus

if TYPE_CHECKING:
    from pgqueue.dashboard.operations import Operations
WHICH: Final = "db"
"""The parameter that names the queue."""
LONGEST: Final = 1_000
"""Characters of a parameter."""
LIVE: Final = "X-Pgqueue-Live"
"""The header with which the script asks for a page again."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")

Content: TypeAlias = Mapping[str, Any]
"""What a page shows, by name: values that a template and JSON can show. The dashboard hides the secrets of records before that; a
page hides those in texts that it makes itself."""
T = TypeVar("T")


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
        kind: of the form's field; what is hidden cannot be changed.
        value: what is there at first.
        hint: more about it.
        options: what may be chosen from: of a ``select`` these values alone, each with its words; of others beside what is typed.
        required: whether it must be given.
    """

    name: str
    label: str
    kind: Literal["text", "number", "checkbox", "area", "hidden", "select"] = "text"
    value: str = ""
    hint: str = ""
    options: Sequence[str] | Sequence[tuple[str, str]] = ()
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
        affected: what that table is called.
        jobs: some of the jobs to which it would be done.
        possible: False: there is nothing to do it to.
        noted: whether the audit notes it, so that a person may say why.
    """

    title: str
    text: str
    button: str
    back: str
    destroys: bool = True
    fields: Sequence[Field] = ()
    facts: Sequence[tuple[str, object]] = ()
    groups: tuple[Sequence[str], Sequence[Sequence[object]]] | None = None
    affected: str = "Affected jobs"
    jobs: Sequence[Any] = ()
    possible: bool = True
    noted: bool = True

    def named_by(self, wrong: str | None) -> str | None:
        """The field of which an error speaks, by its name or its label at the beginning; None: it speaks of none."""
        said = (wrong or "").lower()
        return next(
            (
                one.name
                for one in self.fields
                for word in (one.name, one.label)
                if re.match(rf"{re.escape(word.lower())}\s*[:=]", said)
            ),
            None,
        )


class ActionResult(msgspec.Struct, frozen=True):
    """What an action did.

    Attributes:
        said: a sentence for the person; "": the next page says it.
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


class Visit:
    """One request.

    Attributes:
        request: as Werkzeug has it.
        endpoint: the name of the page or the action.
        values: the placeholders of its path.
        user: who asks; None: not known yet.
        queues: the dashboard's queues, by name.
        operations: what is done to many jobs, in threads.
        may_act: whether the user may change anything at all.
    """

    def __init__(
        self,
        request: Request,
        urls: MapAdapter,
        *,
        endpoint: str,
        values: Mapping[str, Any],
        user: User | None,
        queues: Mapping[str, PgQueue],
        messages: Messages,
        operations: "Operations",
        standings: SharedStandings,
        labels: DatabaseLabels,
        may_act: bool,
    ) -> None:
        self.request = request
        self.endpoint = endpoint
        self.values = values
        self.user = user
        self.queues = queues
        self._messages = messages
        self.operations = operations
        self._standings = standings
        self._labels = labels
        self._urls = urls
        self.may_act = may_act and user is not None and user.rights > {Right.LOOK}

    @property
    def chosen(self) -> str:
        """The name of the queue that is asked: the one in the address, else the first."""
        name = self.request.args.get(WHICH, "")
        return name if name in self.queues else next(iter(self.queues))

    def check_queue(self) -> None:
        """Refuse an address that names a queue that is not shown here.

        Raises:
            NotFound: it does.
        """
        name = self.request.args.get(WHICH)
        if name and name not in self.queues:
            raise NotFound(f"This dashboard shows no queue {name!r:.80}; it shows {', '.join(self.queues)}.")

    @property
    def queue(self) -> PgQueue:
        """The queue that is asked."""
        return self.queues[self.chosen]

    @cached_property
    def redaction(self) -> Redaction:
        """Hides the queue's secrets."""
        return self.queue.redaction

    def without_secrets(self, found: T) -> T:
        """What a page or a question shows, without the secrets of the records in it."""
        return self.redaction.shown(found, message_of=self.message)

    def message(self, message: str | None, job_id: int) -> str | None:
        """The message of the error of a job, without the secrets of that job."""
        return self._messages.hidden(self.chosen, self.queue, message, job_id)

    @property
    def standings(self) -> Sequence[QueueStanding]:
        """How the queues of the database stand that is asked."""
        return self._standings.of(self.chosen)

    @property
    def standing(self) -> QueueStanding:
        """How the queue stands whose page or action this is.

        Raises:
            NotFound: there is none of the name.
        """
        for one in self.standings:
            if one.queue == self.name:
                return one
        raise NotFound(f"There is no queue {self.name!r:.120} with jobs, settings or a state.")

    @property
    def look(self) -> Look:
        """Whether all is right with the queue that is asked, and how its queues stood at about that time."""
        return self._standings.look(self.chosen)

    @property
    def look_for_workers(self) -> Look:
        """The same for the page of workers, as it was up to 60 s ago."""
        return self._standings.look_for_workers(self.chosen)

    @cached_property
    def counts(self) -> Mapping[str, str]:
        """What the navigation shows beside its pages; empty where the dashboard's login may not read it."""
        try:
            return self._standings.counts(self.chosen)
        except ConnectionFailed:
            raise
        except (PgQueueError, psycopg.Error):
            return {}

    def label(self, *, ask: bool = True) -> str:
        """What the header calls the database.

        Args:
            ask: whether the database may be asked for its name.
        """
        return self._labels.of(self.chosen, ask=ask)

    @property
    def recent_standings(self) -> Sequence[QueueStanding]:
        """The same for a list of jobs: of a large table, as they were up to 15 s ago."""
        return self._standings.for_list(self.chosen, again=self.is_live)

    @cached_property
    def replica(self) -> ReplicaStatus | None:
        """How far the replica is behind that pages are read from; None: they are read from the primary."""
        return self.queue.insight.replica()

    @cached_property
    def form_key(self) -> str:
        """What a form carries to show that it is ours."""
        return form_key(self.request)

    @property
    def is_live(self) -> bool:
        """Whether the script asks for the page again, so that it needs only the part that changes."""
        return LIVE in self.request.headers

    @property
    def by(self) -> str:
        """What the audit calls the user."""
        return "dashboard" if self.user is None else self.user.name

    def can(self, right: Right | str) -> bool:
        """Whether the user may do this here."""
        if self.user is None or Right(right) not in self.user.rights:
            return False
        return right == Right.LOOK or self.may_act

    def url(self, endpoint: str, **given: object) -> str:
        """The address of a page or an action; what is None is left out."""
        values = {name: value for name, value in given.items() if value not in (None, "")}
        if len(self.queues) > 1:
            values.setdefault(WHICH, self.chosen)
        return self._urls.build(endpoint, values, append_unknown=True)

    def here(self, **changed: object) -> str:
        """The address of this page with some parameters changed; what is None is taken away."""
        given: dict[str, Any] = {key: self.request.args.getlist(key) for key in self.request.args}
        return self.url(self.endpoint, **{**self.values, **given, **changed})

    def text(self, name: str, longest: int = LONGEST) -> str | None:
        """A parameter of the address; None: it is not given, or empty.

        Raises:
            InvalidOption: it is too long.
        """
        value = self.request.args.get(name, "").strip()
        if len(value) > longest:
            raise InvalidOption(f"{name}: it has more than {longest:,} characters")
        return value or None

    @property
    def name(self) -> str:
        """Of which queue, limit or schedule a page or an action is: the parameter ``name``, exactly as it is written.

        Raises:
            InvalidOption: it is not given, or too long.
        """
        name = self.request.args.get("name", "")
        if not 0 < len(name) <= LONGEST:
            raise InvalidOption(
                f"name={name!r:.80}: give the name of what you mean, at most {LONGEST:,} characters"
            )
        return name

    def texts(self, name: str) -> list[str]:
        """All values of a parameter of the address."""
        return [one for one in self.request.args.getlist(name) if one]

    def number(self, name: str) -> int | None:
        """A parameter of the address that is a whole number; None: it is not given.

        Raises:
            InvalidOption: it is no whole number that PostgreSQL can hold.
        """
        text = self.text(name)
        if text is None:
            return None
        if not _NUMBER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
            raise InvalidOption(f"{name}={text!r:.40}: give a whole number of 64 bits")
        return int(text)

    @property
    def why(self) -> str | None:
        """Why a person does what they do, for the audit; None: they gave no reason.

        Raises:
            InvalidOption: it is too long, or PostgreSQL cannot hold it.
        """
        text = self.field("why")
        return check_text("Why", text, longest=LONGEST_REASON) if text else None

    def field(self, name: str) -> str:
        """What was typed into a field of a form."""
        return self.request.form.get(name, "").strip()
