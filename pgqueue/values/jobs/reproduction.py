"""The source of a test that runs a job's task with the job's arguments: it fails as the job did, until the task is mended.

What comes from the job is a literal, or a comment of which no line can be code, a directive or the file's encoding.
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from keyword import iskeyword
from typing import Any, Final
from unicodedata import combining, east_asian_width

import msgspec

from pgqueue.values.jobs.job import AttemptError, Job
from pgqueue.values.payloads.storable import UNREADABLE, require_args
from pgqueue.values.version import __version__

COLUMNS: Final = 1_000
"""Characters of a line of an error that are shown."""
LINES: Final = 80
"""Lines of an error that are shown; of a longer one, the last."""
NAME: Final = 36
"""Characters of the task in the test's name."""
TAKEN: Final = frozenset({"replay", "json", "ARGS", "META"})
"""Names that the file uses itself."""
_ESCAPED: Final = r"\\x23"
_DIRECTIVE: Final = re.compile(r"#(?=\s*(?:noqa|[\w-]+\s*:))", re.IGNORECASE)


class QueueImport(msgspec.Struct, frozen=True):
    """Where the app's queue is: ``from shop.jobs import queue``."""

    module: str
    name: str

    @property
    def used(self) -> str:
        """What the file calls it."""
        return "queue" if self.name in TAKEN else self.name

    @property
    def line(self) -> str:
        """The statement that imports it."""
        renamed = "" if self.used == self.name else f" as {self.used}"
        return f"from {self.module} import {self.name}{renamed}"


def source_of(job: Job, place: QueueImport | None, *, hidden: str | None = None, known: bool = True) -> str:
    """The file of a test.

    Args:
        job: what is recorded of the job.
        place: where the queue is; None: pytest's setting ``pgqueue_app`` says it.
        hidden: what stands in place of hidden values; None: none is hidden.
        known: whether the app has the job's task.

    Raises:
        InvalidOption: the arguments are not kept, or cannot be read.
    """
    require_args(job)
    values = {"ARGS": job.args}
    if job.meta is not None and set(job.meta) != {UNREADABLE}:
        values["META"] = job.meta
    lines = [
        f'"""Job {job.id} in a test: what made it fail, so that it does not again."""',
        "",
        *_notes(_hidden_in(job, hidden), known=known),
        *_story(job),
        "",
        *_imports(place, needs_json=any(map(too_deep, values.values()))),
    ]
    for name, value in values.items():
        head = f"{name} = "
        lines += f"{head}{literal(value, before=len(head))}".split("\n")
    return "\n".join([*lines, "", "", *_test(job, place, with_meta="META" in values), ""])


def file_name(job: Job) -> str:
    """The name of that file."""
    return f"test_job_{_number(job)}.py"


def _hidden_in(job: Job, hidden: str | None) -> str | None:
    """Return what stands for hidden values, if the job's text has any; a value that is nested too deeply is hidden, too."""
    written = str((job.args, job.meta, job.errors[-1:]))
    return hidden if hidden is not None and (hidden in written or UNREADABLE in written) else None


def _notes(hidden: str | None, *, known: bool) -> Iterator[str]:
    if hidden is not None:
        yield f"# Values are hidden here: write them in place of {text(hidden)}."
        yield "#"
    if not known:
        yield "# The app has no task of this name: the test fails with UnknownTask."
        yield "#"


def _story(job: Job) -> Iterator[str]:
    yield from _comment(f"task: {job.task}")
    yield from _comment(f"queue: {job.queue}")
    ended = "" if job.ended_at is None else f" since {job.ended_at.isoformat(' ', 'seconds')}"
    reason = "" if job.reason is None else f" ({job.reason})"
    yield from _comment(f"state: {job.state}{reason}{ended}, attempts {job.attempts} of {job.max_attempts}")
    yield from _comment(f"written by pgqueue {__version__}")
    if job.errors:
        yield "#"
        yield from _error(job.errors[-1])


def _error(error: AttemptError) -> Iterator[str]:
    at = "" if error.at is None else f", {error.at.isoformat(' ', 'seconds')}"
    yield f"# The error of attempt {error.attempt}{at}:"
    said = (error.traceback or f"{error.type}: {error.message}").splitlines()
    if len(said) > LINES:
        yield f"# | ... {len(said) - LINES} lines more"
    for line in said[-LINES:]:
        yield from _comment(line)


def _comment(line: str) -> Iterator[str]:
    shown = "".join(one if one.isprintable() else repr(one)[1:-1] for one in line[:COLUMNS])
    more = f"... {len(line) - COLUMNS:,} more characters" if len(line) > COLUMNS else ""
    yield f"# | {_DIRECTIVE.sub(_ESCAPED, shown)}{more}".rstrip()


def _imports(place: QueueImport | None, *, needs_json: bool) -> Iterator[str]:
    if needs_json:
        yield from ("import json", "")
    ours = "from pgqueue.testing import replay"
    if place is None:
        yield from (
            '# pytest has to know the app\'s queue: pgqueue_app = "shop.jobs:queue" in its settings.',
            ours,
            "",
        )
    else:
        yield from (ours, "", place.line, "")  # ruff puts what is the project's own last


def _test(job: Job, place: QueueImport | None, *, with_meta: bool) -> Iterator[str]:
    task = re.sub(r"\W+", "_", job.task.rpartition(".")[2], flags=re.ASCII).strip("_")[:NAME] or "task"
    queue, given = ("pgqueue_app", "pgqueue_app") if place is None else (place.used, "")
    yield f"def test_job_{_number(job)}_of_{task}({given}):"
    more = ["meta=META"] if with_meta else []
    yield f"    {call('replay', [queue, text(job.task), 'ARGS', *more], indent='    ')}"


def _number(job: Job) -> str:
    return str(job.id).replace("-", "minus_")


def is_importable(place: QueueImport) -> bool:
    """Whether an import statement can name it."""
    return all(part.isidentifier() and not iskeyword(part) for part in (*place.module.split("."), place.name))


WIDTH: Final = 88
INDENT: Final = " " * 4
DEEPEST: Final = 30
"""Levels of a value that are written as source; Python's parser takes about 90. A deeper value is written as its JSON."""
_UNQUOTED: Final = re.compile(r"""[^'"]+""")


def literal(value: Any, *, indent: str = "", before: int = 0, after: int = 0) -> str:  # noqa: ANN401 - any JSON
    """A value of JSON as a Python expression.

    It needs no import, but for ``json`` where the value is nested more deeply than ``DEEPEST`` levels.

    Args:
        value: what ``json.loads`` returns.
        indent: of the line that it begins in.
        before: columns of that line that are taken, with the indent.
        after: columns that follow it in its last line.
    """
    if too_deep(value):
        return call("json.loads", [text(json.dumps(value))], indent=indent, before=before)
    return _laid_out(value, indent, before, after)


def _laid_out(value: Any, indent: str, before: int, after: int) -> str:  # noqa: ANN401 - any JSON
    one_line = _flat(value)
    if before + _columns(one_line) + after <= WIDTH or not (isinstance(value, dict | list) and value):
        return one_line
    inner = indent + INDENT
    if isinstance(value, list):
        lines = [f"{inner}{_laid_out(one, inner, len(inner), 1)},\n" for one in value]
        return "".join(("[\n", *lines, indent, "]"))
    lines = []
    for name, one in value.items():
        head = f"{inner}{text(name)}: "
        lines.append(f"{head}{_laid_out(one, inner, _columns(head), 1)},\n")
    return "".join(("{\n", *lines, indent, "}"))


def call(function: str, arguments: Sequence[str], *, indent: str = "", before: int | None = None) -> str:
    """A call as a Python expression: in one line, else its arguments in one line, else a line for each.

    Args:
        function: its name.
        arguments: as source, of one line each.
        indent: of the line that it begins in.
        before: columns of that line that are taken; by default those of the indent.
    """
    inner, together = indent + INDENT, ", ".join(arguments)
    one_line = f"{function}({together})"
    if (len(indent) if before is None else before) + _columns(one_line) <= WIDTH:
        return one_line
    if len(arguments) == 1 or len(inner) + _columns(together) <= WIDTH:
        return f"{function}(\n{inner}{together}\n{indent})"
    return "".join((f"{function}(\n", *(f"{inner}{one},\n" for one in arguments), indent, ")"))


def too_deep(value: object) -> bool:
    """Whether a value is nested more deeply than its source may be."""
    level = [value]
    for _ in range(DEEPEST):
        level = list(chain.from_iterable(map(_within, level)))
        if not level:
            return False
    return True


def text(value: str) -> str:
    """A string as Python source: in double quotes, unless others need fewer escapes. What cannot be printed is escaped."""
    quote = "'" if value.count('"') > value.count("'") else '"'
    return quote + _UNQUOTED.sub(_escape, value).replace(quote, f"\\{quote}") + quote


def _escape(part: re.Match[str]) -> str:
    return repr(part[0])[1:-1]


def _flat(value: Any) -> str:  # noqa: ANN401 - any JSON
    match value:
        case str():
            return text(value)
        case dict():
            return f"{{{', '.join(f'{text(name)}: {_flat(one)}' for name, one in value.items())}}}"
        case list():
            return f"[{', '.join(map(_flat, value))}]"
        case float():
            return repr(value).replace("e+", "e")
        case _:
            return repr(value)


def _within(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _columns(source: str) -> int:
    """Return how wide a line is shown, as ruff counts it."""
    if source.isascii():
        return len(source)
    return sum(2 if east_asian_width(one) in "WF" else not combining(one) for one in source)
