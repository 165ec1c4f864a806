"""The events of a run as OpenLineage's client has them, and how they are sent."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pgqueue.errors import ConfigurationError
from pgqueue.values.hints import missing_extra
from pgqueue.values.version import __version__

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent
    from openlineage.client.generated.base import DatasetFacet, OutputDatasetFacet, RunFacet

NAMESPACE: Final = "pgqueue"
PRODUCER: Final = f"https://pypi.org/project/pgqueue-jobs/{__version__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table as an event names it.

    Attributes:
        namespace: the server, or the file system.
        name: within it.
        columns: name, type and comment of each; empty: not known.
        rows: how many rows the run wrote to it; None: not known.
        made_from: for a column, the namespace, table and column that it is a copy of.
    """

    namespace: str
    name: str
    columns: tuple[tuple[str, str, str], ...] = ()
    rows: int | None = None
    made_from: Mapping[str, tuple[tuple[str, str, str], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is told at the start or at the end of a run.

    Attributes:
        state: ``START``, ``COMPLETE``, ``FAIL`` or ``ABORT``.
        run: the run's id.
        step: the step.
        at: the time, in UTC.
        reads: the tables that it reads.
        writes: the tables that it writes.
        error: the class of the error with which it ended.
    """

    state: str
    run: str
    step: str
    at: datetime
    reads: tuple[TableFacts, ...]
    writes: tuple[TableFacts, ...]
    error: str | None = None


def open_client() -> Callable[[RunFacts], None]:
    """What sends events, as the environment configures it.

    Raises:
        ConfigurationError: the extra ``lineage`` is not installed.
    """
    try:
        from openlineage.client import OpenLineageClient  # noqa: PLC0415 - of the extra "lineage"
    except ImportError as error:
        raise ConfigurationError(
            missing_extra(
                "lineage", "the environment configures OpenLineage, and its client is not installed"
            )
        ) from error
    client = OpenLineageClient()
    return lambda facts: client.emit(event_of(facts))


def event_of(facts: RunFacts) -> "RunEvent":
    """The event."""
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState  # noqa: PLC0415 - as before
    from openlineage.client.facet_v2 import error_message_run, job_type_job  # noqa: PLC0415 - as before

    kind = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="PGQUEUE", jobType="STEP")
    failed: dict[str, RunFacet] = (
        {"errorMessage": error_message_run.ErrorMessageRunFacet(facts.error, "PYTHON")} if facts.error else {}
    )
    return RunEvent(
        eventType=RunState(facts.state),
        eventTime=facts.at.isoformat(),
        run=Run(facts.run, facets=failed),
        job=Job(
            os.environ.get("OPENLINEAGE_NAMESPACE") or NAMESPACE,
            f"pipeline.{facts.step}",
            facets={"jobType": kind},
        ),
        inputs=[_input(one) for one in facts.reads],
        outputs=[_output(one) for one in facts.writes],
        producer=PRODUCER,
    )


def _input(table: TableFacts) -> "InputDataset":
    from openlineage.client.event_v2 import InputDataset  # noqa: PLC0415 - as before

    return InputDataset(table.namespace, table.name, facets=_facets(table))


def _output(table: TableFacts) -> "OutputDataset":
    from openlineage.client.event_v2 import OutputDataset  # noqa: PLC0415 - as before
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics  # noqa: PLC0415 - as before

    written: dict[str, OutputDatasetFacet] = (
        {}
        if table.rows is None
        else {"outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(rowCount=table.rows)}
    )
    return OutputDataset(table.namespace, table.name, facets=_facets(table), outputFacets=written)


def _facets(table: TableFacts) -> "dict[str, DatasetFacet]":
    from openlineage.client.facet_v2 import column_lineage_dataset, schema_dataset  # noqa: PLC0415 - as before

    found: dict[str, DatasetFacet] = {}
    if table.columns:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name=name, type=kind, description=said or None)
            for name, kind, said in table.columns
        ]
        found["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
    if table.made_from:
        inputs = {
            column: column_lineage_dataset.Fields(
                inputFields=[column_lineage_dataset.InputField(*one) for one in of]
            )
            for column, of in table.made_from.items()
        }
        found["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(fields=inputs)
    return found
