"""What ``pipeline.toml`` may say: the lake's place, a job's tenant, the price of running, and the service objectives.

The file is read and checked before any work starts. This module does not ask Spark or the database.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from pgqueue.errors import ConfigurationError
from pgqueue.values.hints import remedy

LEFT_OUT = ("unique_key", "args", "errors", "result", "meta")
"""Columns of ended jobs that a lake may leave out."""
HASHED = ("unique_key", "args", "result", "meta")
"""Columns that it may hash; not errors, whose hash says nothing: each traceback is another text."""
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
# The paths that Spark's get_json_object reads; for any other path it returns null for every row, without an error.
_JSON_PATH = re.compile(r"\$(?:\.\w+|\['[^']+'\]|\[\d+\])+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a second of running costs.

    Attributes:
        per_run_second: the price, in the currency.
        currency: its name, for display only.
    """

    per_run_second: float
    currency: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """A promise about the jobs of a queue, or of one task in it: this share of them succeeds within these times.

    Attributes:
        queue: the queue's name.
        task: the task's name; None: all tasks of the queue without a promise of their own.
        wait: the longest time from when the job was due to the start of its last attempt; None: no limit.
        run: the longest time that attempt may run; None: no limit.
        objective: the share, above 0 and below 1.
    """

    queue: str
    task: str | None = None
    wait: timedelta | None = None
    run: timedelta | None = None
    objective: float

    def __str__(self) -> str:
        return f"queue {self.queue!r}" + ("" if self.task is None else f", task {self.task!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check of ended jobs: at most this share of them may meet a condition.

    Attributes:
        name: the check's name.
        where: the condition, an expression of DuckDB over the columns of ended jobs.
        task: only jobs of this task; None: of all tasks.
        most: the allowed share, from 0 to below 1.
    """

    name: str
    where: str
    task: str | None = None
    most: float = 0.0


@dataclass(frozen=True, slots=True)
class HiddenColumns:
    """What a new lake does not hold as the database does.

    Attributes:
        leave_out: columns of ended jobs that are null in the lake.
        hashed: columns that hold hashes.
    """

    leave_out: tuple[str, ...] = ()
    hashed: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.leave_out, *self.hashed)

    def __str__(self) -> str:
        """Return what a message says after the lake's name."""
        both = (("leaves out", self.leave_out), ("hashes", self.hashed))
        return (
            " and ".join(f"{what} {', '.join(names)}" for what, names in both if names) or "hides no column"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The contents of the pipeline's file.

    Attributes:
        lake: where the lake is; None: the command line or the environment names it.
        tenant: the JSON path of the tenant in a job's arguments; None: jobs have no tenants.
        cost: the price of running; None: not configured.
        slos: the promises.
        checks: the user's own checks of ended jobs.
        hide: the columns that a new lake leaves out or hashes; None: not configured.
    """

    lake: str | None = None
    tenant: str | None = None
    cost: Cost | None = None
    slos: tuple[Slo, ...] = field(default=())
    checks: tuple[Check, ...] = field(default=())
    hide: HiddenColumns | None = None

    def fingerprint(self) -> str:
        """Twelve letters that change when a setting changes on which figures depend."""
        price = None if self.cost is None else self.cost.per_run_second
        promises = sorted(repr(slo) for slo in self.slos)
        said = json.dumps([self.tenant, price, promises])
        return hashlib.sha256(said.encode()).hexdigest()[:12]


def load(path: str | Path | None) -> Config:
    """The configuration in a file; without a file, an empty one.

    Raises:
        ConfigurationError: the file cannot be read, or a value in it is not valid; the message names the place.
    """
    if path is None:
        return Config()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--config {str(path)!r} cannot be read: {error}") from error
    try:
        return parse(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def parse(text: str) -> Config:
    """A configuration from the text of a ``pipeline.toml``.

    Raises:
        ConfigurationError: the text is not TOML, a key is unknown or missing, or a value is not valid.
    """
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"this is no TOML: {error}") from error
    top = _ConfigTable("", said, ("lake", "tenant", "cost", "slo", "check", "export"))
    return Config(
        lake=top.text("lake"),
        tenant=_tenant(top.text("tenant")),
        cost=_cost(top),
        slos=tuple(_slos(top)),
        checks=tuple(_checks(top)),
        hide=_hide(top),
    )


class _ConfigTable:
    """A table of the file: reads its values by type, and names its place in messages."""

    def __init__(self, place: str, values: object, known: tuple[str, ...]) -> None:
        if not isinstance(values, Mapping):
            raise ConfigurationError(f"{place}{values!r} is no table of keys and values")
        for key in values:
            if key not in known:
                raise ConfigurationError(f"{place}unknown key {key!r}; {remedy(key, known)}")
        self.place = place
        self.values = values

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.refused(key, "use a string that is not empty")
        return value

    def names(self, key: str, known: Collection[str]) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.refused(key, 'use a list of columns, such as ["args"]')
        for one in value:
            if one not in known:
                raise self.refused(key, f"{one!r} cannot be in it; {remedy(one, known)}")
        return tuple(sorted(set(value)))

    def number(self, key: str) -> float:
        value = self.values.get(key)
        if value is None:
            raise ConfigurationError(f"{self.place}{key} is missing; give a number")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refused(key, "use a number")
        return float(value)

    def span(self, key: str) -> timedelta | None:
        value = self.values.get(key)
        if value is None:
            return None
        match = _SPAN.fullmatch(value) if isinstance(value, str) else None
        if match is None or float(match[1]) == 0:
            raise self.refused(key, "use a length of time such as '250ms', '30s', '5m', '2h' or '1d'")
        try:
            return timedelta(seconds=float(match[1]) * UNITS[match[2]])
        except OverflowError:
            raise self.refused(key, "that is too long") from None

    def refused(self, key: str, words: str) -> ConfigurationError:
        return ConfigurationError(f"{self.place}{key} = {self.values[key]!r}: {words}")


def _tenant(path: str | None) -> str | None:
    if path is not None and not _JSON_PATH.fullmatch(path):
        raise ConfigurationError(
            f"tenant = {path!r}: use a JSON path into the arguments such as '$.tenant' or '$.shop.id'"
        )
    return path


def _cost(top: _ConfigTable) -> Cost | None:
    if "cost" not in top.values:
        return None
    table = _ConfigTable("cost: ", top.values["cost"], ("per_run_second", "currency"))
    price = table.number("per_run_second")
    if not 0 <= price < float("inf"):
        raise table.refused("per_run_second", "use a price of zero or more")
    return Cost(per_run_second=price, currency=table.text("currency") or "")


def _hide(top: _ConfigTable) -> HiddenColumns | None:
    if "export" not in top.values:
        return None
    table = _ConfigTable("export: ", top.values["export"], ("leave_out", "hash"))
    left_out, hashed = table.names("leave_out", LEFT_OUT), table.names("hash", HASHED)
    if both := set(left_out) & set(hashed):
        raise ConfigurationError(f"export: {min(both)} is in leave_out and in hash; keep one of them")
    return HiddenColumns(left_out, hashed)


def _slos(top: _ConfigTable) -> Iterator[Slo]:
    tables = _tables(top, "slo", "promise")
    seen: dict[tuple[str, str | None], int] = {}
    for number, values in enumerate(tables, start=1):
        slo = _slo(f"slo {number}: ", values)
        if (first := seen.setdefault((slo.queue, slo.task), number)) != number:
            raise ConfigurationError(f"slo {first} and slo {number} are both about {slo}; keep one of them")
        yield slo


def _slo(place: str, values: Any) -> Slo:  # noqa: ANN401 - any TOML value
    table = _ConfigTable(place, values, ("queue", "task", "wait", "run", "objective"))
    queue = table.text("queue")
    if queue is None:
        raise ConfigurationError(f"{place}queue is missing; name the queue of the promise")
    objective = table.number("objective")
    if not 0 < objective < 1:
        raise table.refused("objective", "use a share above 0 and below 1, such as 0.99")
    wait, run = table.span("wait"), table.span("run")
    if wait is None and run is None:
        raise ConfigurationError(f"{place}wait and run are both missing; give one of them or both")
    return Slo(queue=queue, task=table.text("task"), wait=wait, run=run, objective=objective)


def _checks(top: _ConfigTable) -> Iterator[Check]:
    seen: dict[str, int] = {}
    for number, values in enumerate(_tables(top, "check", "check"), start=1):
        place = f"check {number}: "
        table = _ConfigTable(place, values, ("name", "where", "task", "most"))
        name, where = table.text("name"), table.text("where")
        if name is None or where is None:
            raise ConfigurationError(f"{place}{'where' if name else 'name'} is missing")
        if (first := seen.setdefault(name, number)) != number:
            raise ConfigurationError(
                f"check {first} and check {number} are both called {name!r}; rename one of them"
            )
        most = table.number("most") if "most" in table.values else 0.0
        if not 0 <= most < 1:
            raise table.refused("most", "use a share from 0 to below 1, such as 0.01")
        yield Check(name=name, where=where, task=table.text("task"), most=most)


def _tables(top: _ConfigTable, key: str, what: str) -> list[Any]:
    tables = top.values.get(key, [])
    if not isinstance(tables, list):
        raise ConfigurationError(f"{key}: write [[{key}]], with two brackets, once for every {what}")
    return tables
