"""How the checksum of a day writes instants: as a double where that is exact, else as numeric."""

import re
from importlib.resources import files

from looking import ask

from pgqueue import PgQueue

INSTANTS = """
select '1970-01-01 00:00+00'::timestamptz + make_interval(secs => 0) union all
select '1969-12-31 23:59:59.999999+00' union all
select '2040-01-01 00:00+00' union all
select '2040-01-01 00:00:00.000001+00' union all
select '9999-12-31 23:59:59.999999+00' union all
select '0001-01-01 00:00+00' union all
select '2039-12-31 23:59:59.999999+00'::timestamptz - make_interval(secs => number * 0.000001) from generate_series(0, 20000) as number
union all
select '1970-01-01 00:00+00'::timestamptz + (hashint8extended(number, 7) & 2208988799999999) * interval '1 microsecond'
from generate_series(1, 100000) as number
"""


def test_every_instant_is_written_exactly(queue: PgQueue) -> None:
    statement = files("pgqueue.sql").joinpath("pipeline/lake_checksum.sql").read_text(encoding="utf-8")
    written = re.findall(r"case when run_at between .*?end", statement, re.DOTALL)
    assert len(written) == 1
    other = f"select count(*), count(*) filter (where {written[0]} <> (extract(epoch from run_at) * 1000000)::bigint) "
    ((count, differing),) = ask(queue, f"{other} from ({INSTANTS}) as instants (run_at)")
    assert (count, differing) == (120_007, 0)
