"""What a rule found, on its way from the executors to the answer."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

KEYS = ("queue", "task", "tenant")


def verdicts(
    table: pa.Table, found: Sequence[tuple[object, ...]], kinds: Mapping[str, pa.DataType]
) -> pa.Table:
    """A row for each finding.

    Args:
        table: what the rule was shown: the hours of one task, or of one tenant of a queue.
        found: its findings, each with a value for every column after those that say whose they are.
        kinds: the columns, those of ``KEYS`` that say whose the findings are first.
    """
    names = [[table[key][0].as_py()] * len(found) for key in KEYS if key in kinds]
    columns = zip(*found, strict=True) if found else [()] * (len(kinds) - len(names))
    return pa.Table.from_arrays(
        [pa.array(values, kind) for values, kind in zip([*names, *columns], kinds.values(), strict=True)],
        names=list(kinds),
    )
