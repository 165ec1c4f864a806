"""A job's record, from the row that ``sql/jobs/show.sql`` or ``sql/list.sql`` brings.

JSON comes as text, and times are moved into Python's years by the statements. A value that Python cannot read is shown as its
text (:mod:`pgqueue.values.payloads.codec`). What a codec has encoded stays encoded here.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pgqueue.store.plan import Row
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.payloads.readable import errors_of, object_of, value_of


def job_of(row: Row) -> Job:
    """The record in a row."""
    values = dict(zip(Job.__struct_fields__, row, strict=True))
    values["state"] = JobState(values["state"])
    for name, read in _READ.items():
        if values[name] is not None:
            values[name] = read(values[name])
    values["errors"] = values["errors"] or ()
    return Job(**values)


_READ: Mapping[str, Callable[[str], Any]] = {
    "args": object_of,
    "errors": errors_of,
    "result": value_of,
    "meta": object_of,
}
"""How the JSON of a column is read; it comes as text."""
