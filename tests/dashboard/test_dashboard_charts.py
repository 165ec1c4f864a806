"""What charts look like: ticks, lines with gaps, areas on each other, words for those who do not see them."""

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest

from pgqueue.dashboard.charts import Chart, Curve, Unit, describe_chart, format_figure, svg

START = datetime(2026, 3, 29, 0, 0, tzinfo=UTC)


def _chart(*curves: Curve, step: float = 60, unit: Unit = "count", stacked: bool = False) -> Chart:
    at = tuple(START + timedelta(seconds=step * place) for place in range(len(curves[0].values)))
    return Chart(name="one", title="<One>", unit=unit, step=step, at=at, curves=curves, stacked=stacked)


def _texts(chart: Chart) -> list[str]:
    return [one.text or "" for one in ET.fromstring(svg(chart)).iter("text")]  # noqa: S314 - our own


@pytest.mark.parametrize(
    ("highest", "unit", "labels"),
    [
        (0, "count", ["0", "1"]),
        (3, "count", ["0", "1", "2", "3"]),
        (17, "count", ["0", "5", "10", "15", "20"]),
        (41_000, "count", ["0", "20k", "40k", "60k"]),
        (2.5e9, "count", ["0", "1G", "2G", "3G"]),
        (0.0034, "seconds", ["0", "1 ms", "2 ms", "3 ms", "4 ms"]),
        (50, "seconds", ["0", "15 s", "30 s", "45 s", "1 min"]),
        (4 * 86_400, "seconds", ["0", "1 d", "2 d", "3 d", "4 d"]),
        (1e9, "seconds", None),
    ],
)
def test_an_axis_has_few_ticks_at_round_values(highest: float, unit: Unit, labels: list[str] | None) -> None:
    found = _texts(_chart(Curve("a", "blue", (0.0, float(highest))), unit=unit))[:-1]
    assert len(found) <= 7
    if labels is not None:
        assert [one for one in found if ":" not in one and "Mar" not in one] == labels


@pytest.mark.parametrize("step", [60, 300, 1_800, 3_600, 43_200, 86_400])
@pytest.mark.parametrize("steps", [2, 60, 61, 96])
def test_the_axis_of_time_has_at_most_seven_dates(step: int, steps: int) -> None:
    dates = [
        one for one in _texts(_chart(Curve("a", "blue", (1.0,) * steps), step=step)) if one not in {"0", "1"}
    ]
    assert 1 <= len(dates) <= 7
    assert "00:00" not in dates


def test_a_line_has_a_gap_where_there_is_no_figure() -> None:
    drawn = svg(_chart(Curve("a", "blue", (1.0, 2.0, None, 3.0, None, 4.0, 5.0))))
    assert drawn.count('class="line blue"') == 2
    assert drawn.count('class="point blue"') == 1


def test_areas_stand_on_each_other() -> None:
    drawn = svg(_chart(Curve("a", "good", (4.0, 4.0)), Curve("b", "bad", (4.0, 4.0)), stacked=True))
    heights = [float(one) for one in re.findall(r'class="area \w+" d="M[\d.]+ ([\d.]+)', drawn)]
    assert heights == [79.0, 10.0]


def test_a_chart_says_in_words_what_it_shows() -> None:
    chart = _chart(Curve("a", "blue", (1.0, 7.0, 3.0)), Curve("b", "bad", (None, None, None)))
    assert describe_chart(chart) == "a: from 1 to 7, at last 3. b: no figures. Times are UTC."
    root = ET.fromstring(svg(chart))  # noqa: S314 - our own
    assert root.get("role") == "img"
    named = (root.get("aria-labelledby") or "").split()
    assert [next(one.text for one in root.iter() if one.get("id") == name) for name in named] == [
        "<One>",
        describe_chart(chart),
    ]


def test_hostile_names_stay_text_and_no_style_is_in_it() -> None:
    drawn = svg(_chart(Curve("</svg><script>x()</script>", "blue", (1.0, 2.0))))
    assert "<script" not in drawn
    assert "style" not in drawn
    assert not _chart(Curve("a", "blue", (1.0,))).empty
    assert _chart(Curve("a", "blue", (0.0, None))).empty
    svg(_chart(Curve("a", "blue", (1.0,))))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "—"),
        (0, "0 ms"),
        (2e-5, "20 µs"),
        (0.0125, "12.5 ms"),
        (1, "1 s"),
        (90, "90 s"),
        (300, "5 min"),
        (9e4, "25 h"),
    ],
)
def test_lengths_of_time_have_units(seconds: float | None, words: str) -> None:
    assert format_figure(seconds, "seconds") == words
