"""The rules by which the bench sums up, compares and judges; and its plots. Nothing here needs a database."""

import json
from pathlib import Path

import msgspec
import pytest
from bench import endurance, grow, plots
from bench.endurance import SoakEnds, SoakSample
from bench.grow import Points
from click.testing import CliRunner

from pgqueue.bench.costs import QUERY, ends
from pgqueue.bench.figures import Figure, FigureChange, Pair, changes, result
from pgqueue.bench.loads import percentile
from pgqueue.bench.stage import FULL, Sizes

B = Figure("B", "drain", "jobs/s", "floor")
KEPT = SoakEnds(enqueued=1_000, seconds=10.0, backlog=3, succeeded=1_000, dead=0, left=0)


def test_the_ratio_is_the_median_of_the_rounds_ratios() -> None:
    found = result(B, [Pair(10, 10), Pair(90, 30), Pair(40, 40)])
    assert (found.median_ours, found.median_other, found.ratio) == (40, 30, 1)


def test_a_figure_without_anything_beside_it_stands_for_itself() -> None:
    found = result(B, [Pair(10), Pair(30), Pair(20)])
    assert (found.beside, found.median_ours, found.median_other, found.ratio) == (None, 20, None, None)


def test_ratios_are_compared_with_ratios_and_values_with_values() -> None:
    before = [result(B, [Pair(50, 100)]), result(Figure("M rss", "", "MB"), [Pair(40)])]
    now = [
        result(B, [Pair(120, 200)]),
        result(Figure("M rss", "", "MB"), [Pair(30)]),
        result(Figure("C", "", "ms"), [Pair(1)]),
    ]
    found = changes(now, before)
    assert found["B"].before == 0.5
    assert found["B"].change == pytest.approx(0.2)
    assert found["M rss"] == FigureChange(40, -0.25)
    assert found["C"] == FigureChange(None, None)


def test_what_had_a_ratio_and_has_none_now_is_not_compared() -> None:
    assert changes([result(B, [Pair(9)])], [result(B, [Pair(9, 3)])])["B"] == FigureChange(None, None)


def test_percentiles_lie_within_what_was_measured() -> None:
    assert [percentile([1.0, 2.0, 3.0, 4.0], share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 3, 4, 4]


def test_the_queries_that_are_counted_are_those_that_the_server_runs() -> None:
    sent = [b"now\tF\t9\tParse\t", b"now\tF\t9\tExecute\t", b"now\tB\t9\tExecute\t", b"now\tF\t9\tQuery\t"]
    assert len(QUERY.findall(b"\n".join(sent))) == 2


def test_a_held_snapshot_lasts_two_rounds_at_least() -> None:
    assert (FULL.drains, Sizes(jobs=100, churn=1).drains) == (6, 2)


def sample(index_bytes: int) -> SoakSample:
    return SoakSample(
        seconds=1.0,
        enqueued=10,
        started=10,
        p99_wait_ms=None,
        worker_mb=40.0,
        jobs_bytes=0,
        index_bytes={"jobs_pkey": index_bytes, "jobs_ready": 0},
        history_bytes=0,
        dead_tuples=0,
    )


def test_a_soak_that_kept_everything_has_nothing_to_complain_of() -> None:
    assert endurance.judge([], KEPT, rate=100).complaints == []


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"succeeded": 999}, "1 jobs are lost"),
        ({"succeeded": 1_001}, "1 jobs ended more than once"),
        ({"succeeded": 999, "left": 1}, "1 jobs were not run in the end"),
        ({"succeeded": 998, "dead": 2}, "2 jobs are dead or cancelled"),
        ({"seconds": 20.0}, "only 50 jobs/s could be enqueued, 100 were asked for"),
        ({"backlog": 501}, "501 jobs were waiting at the end"),
    ],
)
def test_a_soak_tells_what_went_wrong(changed: dict[str, float], complaint: str) -> None:
    (told,) = endurance.judge([], msgspec.structs.replace(KEPT, **changed), rate=100).complaints
    assert told.startswith(complaint)


@pytest.mark.parametrize(
    ("sizes", "growth", "words"),
    [
        ([1, 1, 4, 5, 6, 9], 1.8, "stayed bounded"),
        ([1, 1, 4, 2, 6, 9], 2.25, "did NOT stay bounded"),
        ([1, 9], None, "too few looks"),
    ],
)
def test_indices_are_bounded_if_the_last_third_is_no_more_than_twice_the_middle_one(
    sizes: list[int], growth: float | None, words: str
) -> None:
    verdict = endurance.judge([sample(size) for size in sizes], KEPT, rate=100)
    assert verdict.index_growth == growth
    assert words in verdict.notes[0]


def test_rates_are_those_since_the_look_before() -> None:
    later = msgspec.structs.replace(sample(1), seconds=3.0, enqueued=50, started=30).since(sample(1))
    assert (later.enqueued_per_second, later.started_per_second, later.backlog) == (20.0, 10.0, 20)


def test_growth_is_measured_at_every_point_and_kept_beside_its_plots(
    empty_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = Points(jobs=20, largest=1_000, concurrencies=(2,), enqueuers=(2,), payloads=(300,))
    monkeypatch.setattr(grow, "SMALL", tiny)
    result = CliRunner().invoke(grow.grow, ["--small", "--out", str(tmp_path), "--dsn", empty_dsn])
    assert result.exit_code == 0, result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        "figures.json",
        *(f"{name}.svg" for name in plots.PLOTS),
    }
    points = json.loads((tmp_path / "figures.json").read_text())["points"]
    assert [(point["plot"], point["x"]) for point in points] == [
        ("backlog", 1_000),
        ("backlog", 1_000),
        ("concurrency", 2),
        ("concurrency", 2),
        ("concurrency", 2),
        ("payload", 300),
        ("payload", 300),
    ]
    assert all(point["y"] > 0 for point in points)


@pytest.mark.parametrize(
    ("rates", "first_and_last"),
    [([5.0, 1.0], (5.0, 1.0)), ([9.0, 4.0, 8.0, *[0.0] * 24, 6.0, 7.0, 1.0], (8.0, 6.0))],
)
def test_the_ends_of_many_rounds_are_the_medians_of_a_tenth(
    rates: list[float], first_and_last: tuple[float, float]
) -> None:
    assert ends(rates) == first_and_last
