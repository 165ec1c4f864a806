"""The filter in Python and the one in PostgreSQL: what contains what, and which name a pattern stands for."""

from typing import Any

import msgspec
import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgqueue.values.bulk.filter import contains, like
from pgqueue.values.pattern import stands_for

scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([1.0, 0.5, "", "a", "1"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from("ab"), values, max_size=2)
names = st.text(st.sampled_from("ab*%_\\"), min_size=1, max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(objects, objects)
def test_containment_is_jsonbs(connection: psycopg.Connection[Any], whole: Any, part: Any) -> None:
    texts = [msgspec.json.encode(value).decode() for value in (whole, part)]
    row = connection.execute("select %s::jsonb @> %s::jsonb", texts).fetchone()
    assert row == (contains(whole, part),)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(names, names)
def test_a_pattern_is_the_same_for_like(connection: psycopg.Connection[Any], pattern: str, name: str) -> None:
    row = connection.execute("select %s::text like %s::text", [name, like(pattern)]).fetchone()
    assert row == (stands_for(pattern, name),)
