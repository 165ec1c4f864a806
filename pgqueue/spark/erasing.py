"""Erasing, end to end: from the lake's days and the database, and from the roll-ups that may name what was erased.

Each step looks at the lake for what is left to do, so a killed call can be repeated.
"""

from collections.abc import Callable, Collection
from datetime import date

from pgqueue.errors import ConfigurationError
from pgqueue.spark.config import Config
from pgqueue.spark.lake.erase import EraseCondition, ErasedDay, erase
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.verify import VerifyResult, verify
from pgqueue.spark.rollup.in_duckdb import path_of
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.spark.rollup.tables import SCHEMAS, folder
from pgqueue.spark.session import SessionOrStart
from pgqueue.store.connections.database import Database

NAMING = "failures"
"""A roll-up of every day; it holds messages of jobs."""


def of_tenant(tenant: str, config: Config) -> EraseCondition:
    """The jobs of a tenant.

    Raises:
        ConfigurationError: the configuration does not say where a job's tenant is.
    """
    if config.tenant is None:
        raise ConfigurationError(
            'jobs have no tenants: write tenant = "$.customer_id", with your own path, into the file that --config names'
        )
    values = {"tenant": tenant, "path": str(path_of(config.tenant))}
    return EraseCondition("json_extract_string(args, $path) = $tenant", values)


def erase_everywhere(
    spark: SessionOrStart,
    database: Database,
    lake: Lake,
    config: Config,
    condition: EraseCondition,
    *,
    reason: str = "",
    days: Collection[date] | None = None,
    tell: Callable[[ErasedDay], object] = lambda _: None,
) -> tuple[list[ErasedDay], list[VerifyResult]]:
    """Erase jobs, verify the changed days, and make their roll-ups again.

    Args:
        spark: the session for large days, or what starts it once one is needed.
        database: the lake's.
        lake: the lake.
        config: promises, tenants and costs, as the roll-ups were made with.
        condition: which jobs.
        reason: recorded with each changed day.
        days: these days only.
        tell: called with each changed day.

    Returns:
        The days that had such jobs, and the result of verifying every day that was changed and is not verified.

    Raises:
        InvalidOption, LakeError, PipelineError: as :func:`pgqueue.spark.lake.erase.erase`.
    """
    found = erase(database, lake, condition, reason=reason, days=days, tell=tell)
    changed = {entry.day: entry for entry in lake.days() if entry.day is not None and entry.erased}
    unverified = [day for day, entry in changed.items() if entry.verified is None]
    verified = verify(spark, database, lake, days=unverified) if unverified else []
    made = {entry.day: entry.made_from for entry in lake.entries(folder(NAMING))}
    outdated = [
        day
        for day, entry in changed.items()
        if day in made and made[day].get("ended") != str(entry.generation)
    ]
    if outdated:
        rollup(spark, database, lake, config, days=outdated)
    for table in SCHEMAS:
        lake.sweep(folder(table), kept_hours=0)
    return found, verified
