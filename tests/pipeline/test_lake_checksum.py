"""How the checksum of a day writes instants: as a double where that is exact, else as numeric."""

import re

import pytest
from looking import ask
from store.sqlfiles import SQL

from pgqueue import PgQueue

INSTANTS = """
select '1970-01-01 00:00+00'::timestamptz + make_interval(secs => 0) union all
select '1969-12-31 23:59:59.999999+00' union all
select '2040-01-01 00:00+00' union all
select '2040-01-01 00:00:00.000001+00' union all
select '9999-12-31 23:59:59.999999+00' union all
select '2040-01-01 00:00+00'::timestamptz + number * interval '2900 days 1.234567 seconds' from generate_series(1, 1000) as number
union all
select '0001-01-01 00:00+00' union all
select '2039-12-31 23:59:59.999999+00'::timestamptz - make_interval(secs => number * 0.000001) from generate_series(0, 20000) as number
union all
select '1970-01-01 00:00+00'::timestamptz + (hashint8extended(number, 7) & 2208988799999999) * interval '1 microsecond'
from generate_series(1, 100000) as number
"""


COLUMNS = ["run_at", "created_at", "started_at", "ended_at"]


@pytest.mark.parametrize("column", COLUMNS)
def test_every_instant_is_written_exactly(queue: PgQueue, column: str) -> None:
    (written,) = re.findall(
        rf"case when {column} between .*?\bend\b", SQL["pipeline/lake_checksum"], re.DOTALL
    )
    exact = f"(extract(epoch from {column}) * 1000000)::bigint"
    counts = f"select count(*), count(*) filter (where {written} is distinct from {exact})"
    ((count, differing),) = ask(queue, f"{counts} from ({INSTANTS}) as instants ({column})")
    assert (count, differing) == (121_007, 0)
