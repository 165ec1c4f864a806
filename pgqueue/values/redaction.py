"""What people who look at jobs do not see: the values of fields whose names tell of a secret, wherever a job has them.

A secret is hidden in arguments, results, meta, errors and keys alike, before a page, a table, JSON or a report is made of them.
Text has no fields: there, what follows such a name and a ``=`` or ``:`` is hidden, and each text that a hidden field of the same
job has. The dashboard, Django's admin, the shell and the pipeline's report apply this one rule.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from pgqueue.errors import PgQueueError
from pgqueue.values.insight.now import ErrorGroup
from pgqueue.values.insight.why import Why, retold
from pgqueue.values.jobs.job import ARGS_NOT_KEPT, AttemptError, Job
from pgqueue.values.payloads.storable import UNREADABLE
from pgqueue.values.secret_forms import HIDDEN, MOST_SECRETS, SHORTEST, SecretForms
from pgqueue.values.secret_names import SECRETS, secret_name

T = TypeVar("T")
DATA: Final = frozenset({"args", "result", "meta", "details"})
"""Fields of records that have any JSON of jobs."""
TEXTS: Final = frozenset(
    {
        "answer",
        "closed_why",
        "detail",
        "error",
        "key",
        "lane",
        "message",
        "paused_why",
        "reason",
        "said",
        "sentence",
        "summary",
        "text",
        "traceback",
        "unique_key",
        "why",
    }
)
"""Fields of records that have any text."""
TOLD_BY_PEOPLE: Final = frozenset({"last_message", "paused_by", "paused_why"})
"""Facts on a job that does not run which are any text."""
DEEPEST: Final = 100
"""Levels of a value that are shown."""
LONGEST_NAME: Final = 300
"""Characters of a name that are searched: to search one takes 0.4 µs a character."""
NO_SECRETS: Final = SecretForms()
UNKNOWN: Final = SecretForms([""] * (MOST_SECRETS + 1))
"""Of a job whose arguments were not read."""
JobOf: TypeAlias = Callable[[int], Job]
"""Asks for a job by its id."""
MessageOf: TypeAlias = Callable[[str | None, int], str | None]
"""A message of the error of the job with this id, without the job's secrets."""
_ASSIGNS: Final = re.compile("[=:]")
_VALUE: Final = re.compile(r"""\s*+("(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|[^\s,;&)}\]]++)""", re.DOTALL)
_WORD: Final = re.compile(r"[\w.-]*+")
TOO_DEEP: Final = {UNREADABLE: "it is nested too deeply to be shown"}


class _Known(NamedTuple):
    secrets: SecretForms
    message_of: MessageOf | None


class Redaction:
    """Hides secrets."""

    def __init__(self, patterns: Iterable[str] = SECRETS) -> None:
        """Read the patterns; no pattern hides nothing.

        Raises:
            InvalidOption: one is no regular expression.
        """
        self._name = secret_name(patterns)

    @property
    def rule(self) -> str:
        """The patterns as one text: two objects with the same text hide the same."""
        return self._name.pattern if self._name is not None else ""

    def hides(self, name: str) -> bool:
        """Whether the value of a field of this name is hidden; of a name over :data:`LONGEST_NAME` it is."""
        if self._name is None:
            return False
        return len(name) > LONGEST_NAME or bool(self._name.search(name.replace("-", "_")))

    def named_in(self, value: object, depth: int = 0) -> str | None:
        """The first hidden name in a value; a search for it would tell what it is."""
        if depth > DEEPEST:
            return "what is nested so deeply"
        if isinstance(value, Mapping):
            for name, inner in value.items():
                if self.hides(name):
                    return str(name)
                if found := self.named_in(inner, depth + 1):
                    return found
        elif isinstance(value, list | tuple):
            return next(filter(None, (self.named_in(inner, depth + 1) for inner in value)), None)
        return None

    def value(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        """A value without its secrets."""
        return self._shown(value, set())

    def restored(self, entered: Any, stored: Any) -> Any:  # noqa: ANN401 - any JSON
        """What a person entered who was shown a value without its secrets: where it is as it was shown, the stored value."""
        shown = self.value(stored)
        if entered == shown:
            return stored
        if isinstance(entered, dict) and isinstance(stored, dict):
            return {
                name: stored[name]
                if name in stored and value == shown[name]
                else self.restored(value, stored.get(name))
                for name, value in entered.items()
            }
        if isinstance(entered, list) and isinstance(stored, list) and len(entered) == len(stored):
            return [self.restored(*pair) for pair in zip(entered, stored, strict=True)]
        return entered

    def text(self, text: str | None, secrets: SecretForms = NO_SECRETS) -> str | None:
        """A text without what follows the name of a secret, and without these secrets."""
        if text is None or self._name is None:
            return text
        return "".join(self._without_assigned(secrets.hide(text)))

    def _without_assigned(self, text: str) -> Iterator[str]:
        """The text without the values of hidden names. Each character is read once: a search that goes back may never end."""
        name_from = shown_to = 0
        for sign in _ASSIGNS.finditer(text):
            if sign.start() < name_from:  # it is in a value that is hidden
                continue
            named, name_from = self._ends_in_name(text[name_from : sign.start()]), sign.end()
            if named and (value := _VALUE.match(text, sign.end())):
                yield text[shown_to : value.start(1)]
                yield HIDDEN
                name_from = shown_to = value.end()
        yield text[shown_to:]

    def _ends_in_name(self, text: str) -> bool:
        """Whether the last word has the name of a secret in it, or is the rest of one that has spaces."""
        text = text.rstrip().rstrip("\"'\\")[-LONGEST_NAME:]
        word = len(text) - _WORD.match(text[::-1]).end()  # type: ignore[union-attr]  # it matches the empty text, too
        return any(
            found.end() >= word
            for spelled in {text, text.replace("-", "_")}
            for found in self._name.finditer(spelled)  # type: ignore[union-attr]  # text() has asked
        )

    def job(self, job: Job) -> Job:
        """A job without its secrets. If its arguments were left out, since they are long, its errors are hidden as a whole."""
        forms = self.secrets_of(job)
        return msgspec.structs.replace(
            job,
            args=self.value(job.args),
            result=self.value(job.result),
            meta=self.value(job.meta),
            unique_key=self.text(job.unique_key, forms),
            errors=tuple(self._error(one, forms) for one in job.errors),
        )

    def message(self, message: str | None, job_id: int, job_of: JobOf) -> str | None:
        """The message of a job's error without the secrets of that job.

        Args:
            message: what the error says.
            job_id: which job.
            job_of: asks for a job.
        """
        if message is None or self._name is None:
            return message
        try:
            found = job_of(job_id)
        except PgQueueError:
            return HIDDEN  # it is gone, so what it hid is not known
        return self.text(message, self.secrets_of(found))

    def secrets_of(self, job: Job) -> SecretForms:
        """The values of a job's hidden fields, to hide them in texts that its task wrote."""
        return self.secrets_in(job.args, job.result, job.meta)

    def secrets_in(self, *values: object) -> SecretForms:
        """The values of the hidden fields of a job's values. If its arguments were left out, any text may have them."""
        secrets: set[str] = set()
        for value in values:
            self._shown(value, secrets)
        left_out = any(isinstance(one, Mapping) and ARGS_NOT_KEPT in one for one in values)
        return UNKNOWN if left_out and self._name is not None else SecretForms(secrets)

    def why(self, why: Why, job: Job, message_of: MessageOf) -> Why:
        """Why a job does not run, without the secrets of the job and of those that it waits for.

        The sentence is made again of the hidden facts: cut to its length first, a message would end in a part of a secret.

        Args:
            why: what was found.
            job: the job.
            message_of: the message of a job's error without the secrets of that job, as :meth:`message` makes it.
        """
        found = retold(why, lambda evidence: self._facts(evidence, job, message_of))
        return msgspec.structs.replace(found, sentence=self.text(found.sentence) or "")

    def _facts(self, evidence: dict[str, Any], job: Job, message_of: MessageOf) -> dict[str, Any]:
        forms = self.secrets_of(job)
        hidden = {name: self.text(text, forms) for name, text in evidence.items() if name in TOLD_BY_PEOPLE}
        limits = [{**one, "key": self.text(one["key"])} for one in evidence.get("limits", ())]
        nodes = [
            {**one, "message": message_of(one["message"], one["job"])} if one["job"] is not None else one
            for one in evidence.get("nodes", ())
        ]
        waits = [self.text(one, forms) for one in evidence.get("waits_for", ())]
        return {**evidence, **hidden, "limits": limits, "nodes": nodes, "waits_for": waits or None}

    def shown(self, found: T, *, secrets: SecretForms = NO_SECRETS, message_of: MessageOf | None = None) -> T:
        """Anything that a plan returns, without secrets: records, and tuples, lists and dicts of them.

        In a record of ours the fields are known: :data:`DATA` have values of jobs, :data:`TEXTS` texts that tasks or people wrote,
        and names stay, since they are in addresses and commands.

        Args:
            found: what was found.
            secrets: of the job that wrote its texts.
            message_of: the message of a job's error without the secrets of that job; None: they are not known.
        """
        return cast("T", self._record(found, _Known(secrets, message_of)))

    def _record(self, found: Any, known: "_Known") -> Any:  # noqa: ANN401 - any value
        match found:
            case Job():
                return self.job(found)
            case ErrorGroup() if known.message_of is not None:
                return msgspec.structs.replace(found, message=known.message_of(found.message, found.last_job))
            case msgspec.Struct():
                return _replaced(found, self._fields(msgspec.structs.asdict(found), known))
            case dict():
                return self._fields(found, known)
            case list() | tuple() if _holds_records(found):
                return type(found)(self._record(one, known) for one in found)
        return found

    def _fields(self, fields: Mapping[str, Any], known: "_Known") -> dict[str, Any]:
        return {name: self._field(name, value, known) for name, value in fields.items()}

    def _field(self, name: str, value: Any, known: "_Known") -> Any:  # noqa: ANN401 - any value
        if name in DATA:
            return self.value(value) if isinstance(value, Mapping | list | tuple) else value
        if type(value) is str and name in TEXTS:  # and no member of an enumeration
            return self.text(value, known.secrets)
        return self._record(value, known)

    def _error(self, error: AttemptError, secrets: SecretForms) -> AttemptError:
        return msgspec.structs.replace(
            error,
            message=self.text(error.message, secrets) or "",
            traceback=self.text(error.traceback, secrets),
        )

    def _shown(self, value: Any, secrets: set[str], depth: int = 0) -> Any:  # noqa: ANN401 - any JSON
        if depth > DEEPEST:
            return TOO_DEEP
        if isinstance(value, Mapping):
            shown = {}
            for name, inner in value.items():
                if self.hides(name):
                    _collect(inner, secrets)
                    shown[name] = HIDDEN
                else:
                    shown[name] = self._shown(inner, secrets, depth + 1)
            return shown
        if isinstance(value, list | tuple):
            return [self._shown(inner, secrets, depth + 1) for inner in value]
        return self.text(value) if isinstance(value, str) else value


def _holds_records(several: list[Any] | tuple[Any, ...]) -> bool:
    """Whether they are no plain values, such as the many numbers of a chart, and no tuple with names."""
    return not hasattr(several, "_fields") and any(
        isinstance(one, msgspec.Struct | dict | list | tuple) for one in several
    )


def _replaced(record: msgspec.Struct, fields: Mapping[str, Any]) -> msgspec.Struct:
    changed = {name: value for name, value in fields.items() if value is not getattr(record, name)}
    return msgspec.structs.replace(record, **changed) if changed else record


def _collect(value: object, secrets: set[str], depth: int = 0) -> None:
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            if depth < DEEPEST:
                _collect(inner, secrets, depth + 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and len(str(value)) >= SHORTEST:
        secrets.add(str(value))
