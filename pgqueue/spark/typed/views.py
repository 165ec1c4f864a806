"""The SQL of views with a column for each argument of a task, for engines that read the lake."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from pgqueue.spark.typed.columns import TypedColumns, selection
from pgqueue.spark.typed.dialects import DIALECTS, Engine
from pgqueue.store.pipeline.extract_where import TABLES

ENDED: Final = "ended"
_OTHER = re.compile(r"\W", re.ASCII)


def view_names(tasks: Iterable[str], prefix: str = "") -> Mapping[str, str]:
    """The names of the views of tasks: letters, digits and underscores, since catalogs take no others.

    Where the names of two tasks would become one, each gets six digits of its own.
    """
    plain = {task: prefix + _OTHER.sub("_", task).lower() for task in tasks}
    counts = Counter(plain.values())
    return {
        task: name if counts[name] == 1 else f"{name}_{sha256(task.encode()).hexdigest()[:6]}"
        for task, name in plain.items()
    }


def view_of(columns: TypedColumns, engine: Engine, *, task: str, name: str, table: str) -> str:
    """The statement that makes a view of a task's jobs.

    Args:
        columns: the task's.
        engine: whose SQL.
        task: its name.
        name: of the view.
        table: of the ended jobs: SQL that may stand after ``from``.
    """
    dialect, found = DIALECTS[engine], selection(columns, engine, TABLES[ENDED].columns)
    rows = f"(select * from {table} where task = {dialect.text(task)}) as jobs"
    return f"create or replace view {dialect.quote(name)} as\n{found.of(rows, dialect.quote)};"
