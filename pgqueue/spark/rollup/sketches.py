"""KLL sketches in this process, by Apache DataSketches, as Spark reads and writes them.

Percentiles come from KLL sketches, which merge: a day's come from its hours' sketches, and so can those of any other span.
A sketch's answer is off by at most 1.33 % of the ranks with a probability of 99 % (k = 200; the table "single-sided
error" of Apache DataSketches, https://datasketches.apache.org/docs/KLL/KLLAccuracyAndSize.html; the algorithm is
Karnin, Lang, Liberty: Optimal Quantile Approximation in Streams, https://arxiv.org/abs/1603.05346): asked for the
90th percentile of a million run times, it names one between the 88.67th and the 91.33th. With up to 200 values it is exact.

Each function takes and returns an Arrow column, as DuckDB hands them to functions in Python.
"""

from collections.abc import Iterator
from itertools import pairwise

import datasketches  # type: ignore[import-untyped]  # it has no types
import numpy as np
import pyarrow as pa

K = 200
"""The size of a sketch; Spark's default."""
RANKS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
"""The percentiles that the roll-ups have, by the ends of their columns' names."""


def make_sketches(groups: pa.ChunkedArray) -> pa.Array:
    """A sketch of each list of doubles; null for null."""
    made = (None if values is None else _of(values) for values in _lists(groups))
    return pa.array(made, pa.binary())


def merge_sketches(groups: pa.ChunkedArray) -> pa.Array:
    """One sketch for each list of sketches; null for null."""
    found = (None if group is None else _union(group) for group in groups.to_pylist())
    return pa.array(found, pa.binary())


def quantiles(sketches: pa.ChunkedArray, ranks: pa.ChunkedArray) -> pa.Array:
    """The value at a rank of each sketch; null for null."""
    asked = zip(sketches.to_pylist(), ranks.to_pylist(), strict=True)
    return pa.array([None if one is None else _at(one, rank) for one, rank in asked], pa.float64())


def _lists(groups: pa.ChunkedArray) -> Iterator[np.ndarray | None]:
    """The values of each list, without a copy of each."""
    for chunk in groups.chunks:
        values = np.array(chunk.values)  # a sketch reads only arrays that can be written to
        there = chunk.is_valid().to_pylist()
        for is_there, (first, after) in zip(there, pairwise(chunk.offsets.to_pylist()), strict=True):
            yield values[first:after] if is_there else None


def _of(values: np.ndarray) -> bytes:
    sketch = datasketches.kll_doubles_sketch(K)
    sketch.update(values)
    return bytes(sketch.serialize())


def _union(sketches: list[bytes]) -> bytes:
    if len(sketches) == 1:
        return sketches[0]
    union = datasketches.kll_doubles_sketch(K)
    for one in sketches:
        union.merge(datasketches.kll_doubles_sketch.deserialize(one))
    return bytes(union.serialize())


def _at(sketch: bytes, rank: float) -> float:
    return float(datasketches.kll_doubles_sketch.deserialize(sketch).get_quantile(rank, True))  # noqa: FBT003 - up to and with the rank, as Spark
