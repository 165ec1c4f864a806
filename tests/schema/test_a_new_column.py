"""The recipe for a column that only passes through, followed: what is edited, and that every way of a job carries it."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from shutil import copytree, ignore_patterns

EDITS: Mapping[str, Sequence[tuple[str, str]]] = {
    "pgqueue/store/columns.py": [
        (
            'SENT = (Column("meta", Type.JSONB, nullable=True),)',
            'SENT = (Column("meta", Type.JSONB, nullable=True), Column("note_text", Type.TEXT, nullable=True))',
        )
    ],
    "sql/schema/0001_02_jobs.up.sql": [
        (
            "    place_at             timestamptz\n",
            "    place_at             timestamptz,\n    note_text text\n",
        ),
        ("args, errors, meta, flags", "args, errors, note_text, meta, flags"),
        ("at_time), meta, flags", "at_time), note_text, meta, flags"),
    ],
    "sql/schema/0001_03_ended.up.sql": [
        ("    meta         jsonb\n) partition", "    meta         jsonb,\n    note_text text\n) partition"),
        ("    meta         jsonb,\n    flags", "    meta         jsonb,\n    note_text text,\n    flags"),
        ("result, meta::jsonb\n", "result, meta::jsonb, note_text\n"),
        ("reason, null, meta\n", "reason, null, meta, note_text\n"),
        ("null, result, meta\n", "null, result, meta, note_text\n"),
    ],
    "pgqueue/values/jobs/job.py": [
        (
            "    when_full: tuple[WhenFull, int] | None = None\n",
            "    when_full: tuple[WhenFull, int] | None = None\n    note_text: str | None = None\n",
        ),
        (
            "    meta: dict[str, Any] | None = None\n",
            "    meta: dict[str, Any] | None = None\n    note_text: str | None = None\n",
        ),
    ],
    "pgqueue/values/jobs/options.py": [
        (
            "    meta: bytes | None = None\n",
            "    meta: bytes | None = None\n    note_text: str | None = None\n",
        )
    ],
    "pgqueue/app/task.py": [
        (
            "        meta: Mapping[str, Any] | None = None,\n",
            "        meta: Mapping[str, Any] | None = None,\n        note_text: str | None = None,\n",
        ),
        ("            meta=None if meta", "            note_text=note_text,\n            meta=None if meta"),
        (
            "limiting.when_full,\n        )\n",
            "limiting.when_full,\n            options.note_text,\n        )\n",
        ),
    ],
    "pgqueue/django/models.py": [
        (
            "    errors = ValueField(null=True)\n",
            '    errors = ValueField(null=True)\n    note_text: "models.TextField[str | None, str | None]" = models.TextField(null=True)\n',
        )
    ],
}
"""The files of the recipe in docs/architecture.md, and what changes in each."""
MOST_FILES = 20

WAYS = """
import sys
from collections import Counter

import psycopg

from pgqueue import Dead, Debounce, Limit, PgQueue, Throttle, Unique, chain
from pgqueue.store.schema import schema
from pgqueue.testing import drain, in_memory

dsn = sys.argv[1]
schema.migrate(dsn)
queue = PgQueue(dsn)


@queue.task(name="good")
def good() -> None: ...


@queue.task(name="bad")
def bad() -> None:
    raise Dead("no")


@queue.task(name="limited", limit=Limit(1))
def limited() -> None: ...


NOTE = "a\\ttab\\nand a line"
noted = {"note_text": NOTE}
for options in (
    {},
    {"delay": 60},
    {"unique_key": "a"},
    {"unique_key": "b", "unique": Unique(period=60)},
    {"unique_key": "c", "unique": Throttle(60, trailing=True)},
    {"unique_key": "d", "unique": Debounce(60)},
    {"unique_key": "e", "unique": Unique(collision="replace"), "note_text": "not this"},
    {"unique_key": "e", "unique": Unique(collision="replace")},
):
    good.using(**noted | options).enqueue()
limited.using(**noted).enqueue()
many = [good.using(**noted).call(), limited.using(**noted).call(), good.using(unique_key="f", **noted).call()]
queue.enqueue_many(many)
dead = bad.using(**noted).enqueue()
flow = chain(good.using(**noted).call(), bad.using(unique_key="g", **noted).call()).enqueue()


def states() -> Counter:
    listed = queue.insight.search(limit=1000).jobs
    assert {job.note_text for job in listed} == {NOTE}, [job for job in listed if job.note_text != NOTE]
    assert {queue.job(job.id).note_text for job in listed} == {NOTE}
    return Counter(map(str, (job.state for job in listed)))


assert states() == {"ready": 9, "blocked": 3, "scheduled": 2}, states()
drain(queue, allow_real=True)
assert states() == {"succeeded": 10, "scheduled": 2, "dead": 2}, states()
with psycopg.connect(dsn) as connection:
    rows = connection.execute(queue.database.catalogue["pipeline/extract_ended"], prepare=False)
    at = [column.name for column in rows.description].index("note_text")
    assert {row[at] for row in rows} == {NOTE}
queue.retry(dead.id)
flow.retry(what="all")
assert states() == {"succeeded": 10, "scheduled": 2, "ready": 2, "blocked": 1}, states()
queue.close()

with in_memory(queue):
    assert queue.job(good.using(**noted).enqueue().id).note_text == NOTE
"""


def test_a_column_that_only_passes_through_is_an_edit_of_few_files(tmp_path: Path, empty_dsn: str) -> None:
    assert len(EDITS) <= MOST_FILES
    for name in ("pgqueue", "pgqueue.sql", "pgqueue.migrations"):  # as a wheel has them
        here = Path(str(files(name)))
        copytree(here, tmp_path / name.replace(".", "/"), ignore=ignore_patterns("__pycache__"))
    for name, edits in EDITS.items():
        edit(tmp_path / (name if name.startswith("pgqueue/") else f"pgqueue/{name}"), edits)

    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", WAYS, empty_dsn],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def edit(path: Path, edits: Sequence[tuple[str, str]]) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1, (path, old)
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
