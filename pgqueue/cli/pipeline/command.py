"""The verbs of ``pgqueue pipeline``, in files that are imported when a verb runs. :mod:`pgqueue.spark` does the work."""

from typing import Any

import click

from pgqueue.cli.verbs import LazyGroup, Verb
from pgqueue.errors import PipelineError
from pgqueue.values.hints import extra_for

PACKAGES = ("adbc_driver_postgresql", "datasketches", "deltalake", "duckdb", "numpy", "pyarrow")
"""Those of the extra "pipeline", as they are imported."""

VERBS = {
    "check": Verb(
        "pgqueue.cli.pipeline.check:check", "Check the lake's jobs, or the contracts of a new release."
    ),
    "compact": Verb("pgqueue.cli.pipeline.days:compact", "Merge the small files of the lake's days."),
    "contracts": Verb(
        "pgqueue.cli.pipeline.contracts:contracts",
        "Show the types of tasks' arguments, and SQL of typed views.",
    ),
    "deployed": Verb("pgqueue.cli.pipeline.report:deployed", "Record when a version of your code went live."),
    "demo": Verb("pgqueue.cli.pipeline.demo:demo", "Show the pipeline on real jobs and a generated month."),
    "erase": Verb("pgqueue.cli.pipeline.erase:erase", "Remove a tenant's jobs, or others, from the lake."),
    "export": Verb("pgqueue.cli.pipeline.days:export", "Write closed days of ended jobs to the lake."),
    "generate": Verb("pgqueue.cli.pipeline.demo:generate", "Make up history of any size."),
    "leave": Verb("pgqueue.cli.pipeline.days:leave", "Drop old history by its age again, without a lake."),
    "prune": Verb("pgqueue.cli.pipeline.days:prune", "Drop history that is verified in the lake."),
    "report": Verb("pgqueue.cli.pipeline.report:report", "Report on a week: one page, and tables."),
    "rollup": Verb("pgqueue.cli.pipeline.report:rollup", "Sum up the lake's days, for plots and the report."),
    "run": Verb("pgqueue.cli.pipeline.run:run", "Run all steps, as jobs of the queue pipeline."),
    "status": Verb("pgqueue.cli.pipeline.status:status", "Show the state of each day."),
    "steps": Verb("pgqueue.cli.pipeline.status:steps", "Show how long each step took, and what it cost."),
    "verify": Verb("pgqueue.cli.pipeline.days:verify", "Compare the lake's days with the database."),
    "whatif": Verb("pgqueue.cli.pipeline.report:whatif", "Replay recorded jobs under other settings."),
}


class Pipeline(LazyGroup):
    """The group of the pipeline's verbs."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run a verb; an error of Spark becomes one line, without Java's stack."""
        try:
            with extra_for("pipeline", "the pipeline", *PACKAGES):
                return super().invoke(ctx)
        except Exception as error:
            from pgqueue.spark.session import in_a_line, is_of_spark  # noqa: PLC0415 - only for errors

            if not is_of_spark(error):
                raise
            raise PipelineError(f"Spark refused: {in_a_line(error)}") from error


@click.group(cls=Pipeline, verbs=VERBS)
def pipeline() -> None:
    """Export ended jobs to a lake of Delta tables, and report on them.

    Needs the extra "pipeline". Days with more than a million jobs need the extra "spark", too, and Java 17 or later.
    """
