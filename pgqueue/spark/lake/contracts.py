"""The lake's table ``contracts``: each contract that a task has had, as workers published it up to the last export.

The database forgets all but the last contracts of a task; the lake, which has the jobs of all releases, keeps them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from pgqueue.store.pipeline import contracts as plans
from pgqueue.values.payloads.contract import TaskContract

if TYPE_CHECKING:
    from pgqueue.spark.lake.lake import Lake
    from pgqueue.store.connections.database import Database

CONTRACTS: Final = "contracts"
_TIME = pa.timestamp("us", "UTC")
CONTRACT_SCHEMA: Final = pa.schema(
    [
        ("task", pa.string()),
        ("hash", pa.string()),
        ("arguments", pa.string()),
        ("result", pa.string()),
        ("version", pa.string()),
        ("first_seen", _TIME),
        ("last_seen", _TIME),
    ]
)


def contracts_in(lake: "Lake") -> list[TaskContract]:
    """The lake's contracts, by task; of each task first the one that a worker said last.

    Raises:
        LakeError: there is no lake, or a file cannot be read.
    """
    if lake.entry(CONTRACTS, None) is None:
        return []
    return _sorted(TaskContract(**row) for row in lake.rows(CONTRACTS, CONTRACT_SCHEMA).to_pylist())


def keep_contracts(database: "Database", lake: "Lake") -> None:
    """Add the database's contracts to the lake's. Nothing is written if no contract is new, or the last one of its task now."""
    known, found = contracts_in(lake), database.run(plans.listed())
    merged = {(one.task, one.hash): one for one in known}
    for one in found:
        former = merged.get((one.task, one.hash), one)
        first = min(filter(None, (former.first_seen, one.first_seen)), default=None)
        merged[one.task, one.hash] = msgspec.structs.replace(one, first_seen=first)
    wanted = _sorted(merged.values())
    if _order(wanted) != _order(known):
        rows = [msgspec.structs.asdict(one) for one in wanted]
        lake.replace(CONTRACTS, pa.Table.from_pylist(rows, CONTRACT_SCHEMA))


def _order(found: Iterable[TaskContract]) -> list[tuple[str, str]]:
    return [(one.task, one.hash) for one in found]


def _sorted(found: Iterable[TaskContract]) -> list[TaskContract]:
    def place(one: TaskContract) -> tuple[str, float, str]:
        return one.task, -(one.last_seen.timestamp() if one.last_seen else 0), one.hash

    return sorted(found, key=place)
