"""What the dashboard hides of jobs: the values of fields whose names tell of a secret, wherever a job shows them.

A secret is hidden in arguments, results, meta, errors and keys alike, before a template or JSON sees it. Text cannot be taken
apart as fields can: there, what follows such a name and a ``=`` or ``:`` is hidden, and each text that a hidden field of the
same job has.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from pgqueue.dashboard.secret_forms import HIDDEN, SHORTEST, SecretForms
from pgqueue.errors import InvalidOption, PgQueueError
from pgqueue.values.bulk.operation import Preview
from pgqueue.values.insight.why import Why, retold
from pgqueue.values.jobs.job import AttemptError, Job
from pgqueue.values.payloads.storable import UNREADABLE

SECRETS: Final = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "api_?key",
    "private_?key",
    "credential",
    "authorization",
    "cookie",
    "session_?id",
    "card_?number",
    "cvv",
    "iban",
    "ssn",
)
"""Regular expressions, searched for in the names of fields; capitals and hyphens make no difference."""
TOLD_BY_PEOPLE: Final = frozenset({"last_message", "paused_by", "paused_why"})
"""Facts on a job that does not run which are any text."""
DEEPEST: Final = 100
"""Levels of a value that are shown."""
MOST_MESSAGES: Final = 1_000
"""Messages of groups of dead jobs that are remembered."""
LONGEST_NAME: Final = 300
"""Characters of a name that are searched: to search one takes 0.4 µs a character."""
NO_SECRETS: Final = SecretForms()
_ASSIGNS: Final = re.compile("[=:]")
_VALUE: Final = re.compile(r"""\s*+("(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|[^\s,;&)}\]]++)""", re.DOTALL)
_WORD: Final = re.compile(r"[\w.-]*+")
TOO_DEEP: Final = {UNREADABLE: "it is nested too deeply to be shown"}


class Redaction:
    """Hides secrets."""

    def __init__(self, patterns: Iterable[str] = SECRETS) -> None:
        """Read the patterns; no pattern hides nothing.

        Raises:
            InvalidOption: one is no regular expression.
        """
        self._messages: dict[tuple[str, int, str], str] = {}
        joined = "|".join(f"(?:{pattern})" for pattern in patterns)
        try:
            self._name = re.compile(joined, re.IGNORECASE) if joined else None
        except re.error as error:
            raise InvalidOption(
                f"redact: {error.pattern!r:.200} is no regular expression: {error}"
            ) from error

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
        """A job without its secrets."""
        secrets: set[str] = set()
        args, result, meta = (self._shown(one, secrets) for one in (job.args, job.result, job.meta))
        forms = SecretForms(secrets)
        return msgspec.structs.replace(
            job,
            args=args,
            result=result,
            meta=meta,
            unique_key=self.text(job.unique_key, forms),
            errors=tuple(self._error(one, forms) for one in job.errors),
        )

    def jobs(self, jobs: Iterable[Job]) -> list[Job]:
        """Jobs without their secrets."""
        return [self.job(one) for one in jobs]

    def message(self, shown: str, job_id: int, message: str | None, job: Callable[[int], Job]) -> str | None:
        """The message of a dead job's error without the secrets of its arguments, which are asked for once.

        Args:
            shown: of which of the dashboard's queues.
            job_id: which job.
            message: what its error says.
            job: asks for a job.
        """
        if message is None or self._name is None:
            return message
        key = (shown, job_id, message)
        if key not in self._messages:
            if len(self._messages) >= MOST_MESSAGES:
                self._messages.clear()
            self._messages[key] = self._without_secrets(message, job_id, job)
        return self._messages[key]

    def _without_secrets(self, message: str, job_id: int, job: Callable[[int], Job]) -> str:
        try:
            found = job(job_id)
        except PgQueueError:
            return HIDDEN  # it is gone, so what it hid is not known
        return self.text(message, self._forms_of(found)) or ""

    def _forms_of(self, job: Job) -> SecretForms:
        secrets: set[str] = set()
        for value in (job.args, job.result, job.meta):
            self._shown(value, secrets)
        return SecretForms(secrets)

    def why(self, why: Why, shown: str, job: Job, job_of: Callable[[int], Job]) -> Why:
        """Why a job does not run, without the secrets of the job and of those that it waits for.

        The sentence is made again of the hidden facts: cut to its length first, a message would end in a part of a secret.

        Args:
            why: what was found.
            shown: of which of the dashboard's queues.
            job: the job.
            job_of: asks for a job.
        """
        found = retold(why, lambda evidence: self._facts(evidence, shown, job, job_of))
        return msgspec.structs.replace(found, sentence=self.text(found.sentence) or "")

    def _facts(
        self, evidence: dict[str, Any], shown: str, job: Job, job_of: Callable[[int], Job]
    ) -> dict[str, Any]:
        forms = self._forms_of(job)
        hidden = {name: self.text(text, forms) for name, text in evidence.items() if name in TOLD_BY_PEOPLE}
        limits = [{**one, "key": self.text(one["key"])} for one in evidence.get("limits", ())]
        nodes = [
            {**one, "message": self.message(shown, one["job"], one["message"], job_of)}
            if one["job"] is not None
            else one
            for one in evidence.get("nodes", ())
        ]
        waits = [self.text(one, forms) for one in evidence.get("waits_for", ())]
        return {**evidence, **hidden, "limits": limits, "nodes": nodes, "waits_for": waits or None}

    def preview(self, preview: Preview) -> Preview:
        """What an operation would do, without the secrets of its jobs."""
        return msgspec.structs.replace(preview, sample=tuple(self.jobs(preview.sample)))

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


def _collect(value: object, secrets: set[str], depth: int = 0) -> None:
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            if depth < DEEPEST:
                _collect(inner, secrets, depth + 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and len(str(value)) >= SHORTEST:
        secrets.add(str(value))
