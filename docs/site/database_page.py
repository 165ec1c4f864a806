"""The page of tables and functions, read from the schema's files: what each statement says, and the comments on it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PARTS = {
    "Jobs": ("jobs", "ended", "retention", "unique", "enqueue", "waits", "notes", "stacks"),
    "Queues and limits": ("queues", "limits"),
    "Workers": ("workers",),
    "Flows and signals": ("flows", "signals"),
    "Schedules and alerts": ("schedules", "alerts"),
    "Figures over time": ("series",),
    "Data pipeline": ("lake", "rollups", "sink"),
    "Operations and versions": ("audit", "compatibility"),
}
"""Which files of the schema are in which part of the page."""
FOR_APPS = (
    "enqueue",
    "unique_key",
    "canonical_json",
    "as_jsonb",
    "pause_queue",
    "resume_queue",
    "backlog_seconds",
    "signal",
    "resolve",
    "renew_callback_key",
    "schedule",
    "quantile",
)
"""The functions that programs of users call, in the order of the page."""
OF_JOBS = {"job_history", "dead_jobs", "schedules", "sink_rows"}
"""Tables in which a column without a comment means the same as in ``jobs``."""

_TABLE = re.compile(
    r"^create (?:unlogged )?table pgqueue\.(\w+) \((.*?)\)(?: partition[^;]*| with \(.*?\))?;$",
    re.DOTALL | re.MULTILINE,
)
_COLUMN = re.compile(r"^\s*(\w+)\s+([\w.]+(?: precision)?(?:\[\])?)")
_LIKE = re.compile(r"^\s*like pgqueue\.(\w+)")
_VIEW = re.compile(r"^create view pgqueue\.(\w+) as\n(.*?;)$", re.DOTALL | re.MULTILINE)
_ON_TABLE = re.compile(r"^comment on (?:table|view) pgqueue\.(\w+) is\s+'((?:[^']|'')*)';", re.MULTILINE)
_ON_COLUMN = re.compile(
    r"^comment on column pgqueue\.(\w+)\.(\w+) is\s+((?:'(?:[^']|'')*'\s*)+);", re.MULTILINE
)
_FUNCTION = re.compile(
    r"((?:^-- [^\n]*\n)+)^create function pgqueue\.(\w+)\((.*?)\)\s*(?:returns\s+(\w+(?:\s*\[\])?|table \(.*?\)))?\s",
    re.DOTALL | re.MULTILINE,
)
_DOMAIN = re.compile(r"^create domain pgqueue\.(\w+) as (\w+)", re.MULTILINE)
_NOT_A_COLUMN = {"primary", "constraint", "check", "unique", "like", "foreign"}


class _Column(NamedTuple):
    name: str
    type: str
    meaning: str


class _Schema(NamedTuple):
    tables: dict[str, list[_Column]]
    about: dict[str, str]
    views: dict[str, str]
    functions: dict[str, tuple[str, str, str, str]]


def tables_and_functions(root: Path) -> str:
    """The Markdown of all functions and tables."""
    files = {path.name.split("_", 2)[2].removesuffix(".up.sql"): path.read_text() for path in _files(root)}
    schema = _read("\n".join(files.values()))
    parts = [
        "## Functions for your SQL",
        *(_function(name, schema) for name in FOR_APPS if name in schema.functions),
    ]
    for part, names in PARTS.items():
        within = "\n".join(files.pop(name) for name in names)
        parts += [f"## {part}", *(_table(name, schema) for name in _names(within))]
    assert set(files) <= {"values", "rights"}, f"a file of the schema is in no part of the page: {set(files)}"
    others = sorted(
        name
        for name in schema.functions
        if name not in FOR_APPS and "trigger" not in schema.functions[name][3]
    )
    parts += [
        "## Functions that pgqueue itself calls",
        "| Function | What it does | Who may call it |\n|---|---|---|",
    ]
    return "\n\n".join(parts) + "\n" + "\n".join(_row(name, schema) for name in others)


def _files(root: Path) -> list[Path]:
    return sorted((root / "sql" / "schema").glob("0001_*.up.sql"))


def _read(text: str) -> _Schema:
    for name, base in _DOMAIN.findall(text):
        text = re.sub(rf"\bpgqueue\.{name}\b", base, text)
    comments = {(found[1], found[2]): _unquoted(found[3]) for found in _ON_COLUMN.finditer(text)}
    tables: dict[str, list[_Column]] = {}
    for found in _TABLE.finditer(text):
        tables[found[1]] = list(_columns(found[1], found[2], tables, comments))
    about = {found[1]: found[2].replace("''", "'") for found in _ON_TABLE.finditer(text)}
    views = {found[1]: found[2] for found in _VIEW.finditer(text)}
    return _Schema(tables, about, views, dict(_functions(text)))


def _columns(
    table: str, body: str, tables: dict[str, list[_Column]], comments: dict[tuple[str, str], str]
) -> Iterator[_Column]:
    of_jobs = {one.name: one.meaning for one in tables.get("jobs", ())} if table in OF_JOBS else {}
    for line in (f"({body}" if body.startswith("like") else body).lstrip("(").splitlines():
        if like := _LIKE.match(line):
            yield from (
                one._replace(meaning=comments.get((table, one.name), one.meaning)) for one in tables[like[1]]
            )
        elif (column := _COLUMN.match(line)) and column[1] not in _NOT_A_COLUMN:
            kind = column[2].removeprefix("pgqueue.")
            null = " or null" if "not null" not in line and "primary key" not in line else ""
            yield _Column(
                column[1], kind + null, comments.get((table, column[1]), of_jobs.get(column[1], ""))
            )


def _functions(text: str) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    said = {
        found[1]: found[2].replace("''", "'")
        for found in re.finditer(
            r"^comment on function pgqueue\.(\w+)(?:\([^)]*\))? is\s+'((?:[^']|'')*)';", text, re.MULTILINE
        )
    }
    for words, name, parameters, returned in _FUNCTION.findall(text):
        lines = [line.removeprefix("-- ") for line in words.splitlines()]
        callers = next((line.removeprefix("callers: ") for line in lines if line.startswith("callers: ")), "")
        about = said.get(name) or " ".join(line for line in lines if not line.startswith("callers: "))
        yield name, (" ".join(parameters.split()), returned or "record", about, callers)


def _unquoted(literals: str) -> str:
    return "".join(re.findall(r"'((?:[^']|'')*)'", literals.replace("''", "\x01"))).replace("\x01", "'")


def _names(text: str) -> Iterator[str]:
    return (
        found[1]
        for found in re.finditer(
            r"^create (?:unlogged table|table|view) pgqueue\.(\w+) (?!partition)", text, re.MULTILINE
        )
    )


def _table(name: str, schema: _Schema) -> str:
    if name in schema.views:
        return f"### `{name}`\n\n{schema.about.get(name, '')}\n\n```sql\ncreate view pgqueue.{name} as\n{schema.views[name]}\n```"
    rows = (f"| `{one.name}` | {one.type} | {_cell(one.meaning)} |" for one in schema.tables[name])
    return "\n".join(
        [
            f"### `{name}`",
            "",
            schema.about.get(name, ""),
            "",
            "| Column | Type | Meaning |",
            "|---|---|---|",
            *rows,
        ]
    )


def _function(name: str, schema: _Schema) -> str:
    parameters, returned, about, callers = schema.functions[name]
    called = "\n    " + ",\n    ".join(re.split(r", (?=\w+ )", parameters)) + "\n" if parameters else ""
    return f"### `{name}`\n\n```sql\npgqueue.{name}({called}) returns {returned}\n```\n\n{about}\n\nRoles that may call it: {callers}."


def _row(name: str, schema: _Schema) -> str:
    parameters, _, about, callers = schema.functions[name]
    return f"| `{name}({parameters})` | {_cell(about)} | {callers} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
