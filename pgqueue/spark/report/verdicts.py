"""Makes Arrow rows of a rule's findings, to send from the executors to the driver."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

KEYS = ("queue", "task", "tenant")


def verdicts(
    table: pa.Table, found: Sequence[tuple[object, ...]], kinds: Mapping[str, pa.DataType]
) -> pa.Table:
    """A row for each finding.

    Args:
        table: the rule's input: the hours of one task, or of one tenant of a queue.
        found: the rule's findings, each with a value for every column after the keys.
        kinds: the columns; first the keys, those of ``KEYS`` that name the task or tenant.
    """
    names = [[table[key][0].as_py()] * len(found) for key in KEYS if key in kinds]
    columns = zip(*found, strict=True) if found else [()] * (len(kinds) - len(names))
    return pa.Table.from_arrays(
        [pa.array(values, kind) for values, kind in zip([*names, *columns], kinds.values(), strict=True)],
        names=list(kinds),
    )
