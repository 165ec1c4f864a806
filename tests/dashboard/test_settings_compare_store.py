"""The form of a queue's settings, the page that compares before and after a deploy, the page of the store."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from dashboard.people import Person
from looking import ask

from pgqueue import PgQueue
from pgqueue.store.pipeline import rollups
from pgqueue.values.workers.lease import spoken_bytes

MakePerson = Callable[..., Person]


def test_the_form_of_settings_has_choices_units_and_what_holds_where_nothing_is_set(
    queue: PgQueue, person: MakePerson
) -> None:
    queue.control.set("mail", backlog=10, when_full="refuse")
    queue.control.keep(history=timedelta(days=12))
    page = person().get("/queue/set?name=mail").text
    choices = re.search(r'<select name="when_full">(.*?)</select>', page)
    assert choices is not None
    assert re.findall(r'value="(\w*)"( selected)?', choices[1]) == [
        ("", ""),
        ("warn", ""),
        ("refuse", " selected"),
    ]
    assert re.findall(r'name="max_attempts" type="(\w+)"', page) == ["number"]
    assert "empty: 25" in page
    assert "empty: 12 days, as in the whole database" in page
    assert "nothing is said" not in page


@pytest.mark.parametrize(
    ("field", "value"),
    [("timeout", "soon"), ("priority", "x"), ("keep_history", "6h"), ("backlog", "0"), ("ageing_to", "101")],
)
def test_a_wrong_setting_is_marked_and_explained_at_its_field(
    queue: PgQueue, person: MakePerson, field: str, value: str
) -> None:
    queue.control.declare("mail")
    answer = person().do("/queue/set?name=mail", **{field: value})
    assert answer.status_code == 400
    assert re.findall(r'name="(\w+)"[^>]* aria-invalid="true" aria-describedby="wrong-\w+"', answer.text) == [
        field
    ]
    assert f'id="wrong-{field}"' in answer.text
    assert f'value="{value}"' in answer.text


def test_deploys_are_offered_as_instants_newest_first(queue: PgQueue, person: MakePerson) -> None:
    ann = person()
    assert "pgqueue pipeline deployed VERSION" in ann.get("/compare").text
    now = datetime.now(UTC).replace(microsecond=0)
    for number in (3, 1, 2):
        queue.database.run(rollups.note_deploy(f"<b>1.{number}</b>", at=now - timedelta(hours=number)))
    page = ann.get("/compare?window=30m").text
    assert "<b>1." not in page
    offered = re.findall(r'href="(/compare[^"]*at=[^"]*)"[^>]*>&lt;b&gt;1\.(\d)', page)
    assert [number for _, number in offered] == ["1", "2", "3"]
    chosen = ann.get(offered[0][0].replace("&amp;", "&")).text
    assert f"{now - timedelta(hours=1):%Y-%m-%dT%H:%M:%S}" in chosen
    assert 'aria-current="true"' in chosen


def test_small_tables_are_folded_and_sizes_have_units(queue: PgQueue, person: MakePerson) -> None:
    ask(
        queue,
        "insert into pgqueue.queues (name) select 'queue ' || repeat('x', 200) || n from generate_series(1, 6000) as n",
    )
    page = person().get("/store").text
    whole, _, folded = page.partition('<details id="small-tables"')
    assert '<span class="name">queues</span>' in whole
    assert '<span class="name">workers</span>' in folded
    assert "0 MB" not in page
    assert "kB" in folded
    assert "Age in transactions" in page


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 B"), (999, "999 B"), (16_384, "16 kB"), (2_097_152, "2.1 MB"), (512_000_000, "512 MB"), (12 * 10**9, "12.0 GB")],
)  # fmt: skip
def test_an_amount_has_the_unit_that_fits(number: int, said: str) -> None:
    assert spoken_bytes(number) == said
