"""The report as a whole: what is planted in hand-made roll-ups is what the page and the tables say, and nothing else."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from click.testing import CliRunner
from looking import ask
from pyarrow import parquet
from spark.report_worlds import (
    CROWD,
    DAYS,
    EVIL,
    HOURS,
    MISSED,
    NOW,
    SLOWED,
    START,
    STORM,
    SURGE,
    World,
    lake_of,
    world,
)

from pgqueue.cli.main import main
from pgqueue.cli.pipeline.report import MARKS
from pgqueue.errors import InvalidOption, LakeError
from pgqueue.spark.config import Config, Cost
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.report import rollups
from pgqueue.spark.report.rendering import page, svg
from pgqueue.spark.report.report import QUESTIONS, Answers, ReportSummary, answers, report, write
from pgqueue.spark.report.section import Plot, ReportColumn, ReportTable, Section, SectionState, ValueKind
from pgqueue.spark.rollup.tables import SCHEMAS
from pgqueue.store.pipeline.lake import Origin

if TYPE_CHECKING:
    from matplotlib.axes import Axes

pytestmark = [pytest.mark.timeout(300)]

CONFIG = Config(cost=Cost(per_run_second=0.01, currency="EUR"))
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Outline(HTMLParser):
    """What a browser makes of a page: elements, their attributes, and text; strict about nesting."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Answers, ReportSummary, Lake]:
    """A shop with one trouble of each kind, reported on once."""
    lake = lake_of(tmp_path_factory.mktemp("troubled"), world(5, trouble=True))
    found = answers(lake, CONFIG)
    return found, write(found, lake), lake


@pytest.fixture(scope="module")
def html(troubled: tuple[Answers, ReportSummary, Lake]) -> str:
    return Path(troubled[1].html).read_text(encoding="utf-8")


def rows(lake: Lake, name: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = parquet.read_table(
        f"{lake.uri.removeprefix('file://')}/report/{name}/{name}.parquet"
    ).to_pylist()
    return found


def instant(at: int) -> datetime:
    return datetime.fromtimestamp((START + at) * 3_600, UTC)


def picked(found: list[dict[str, object]], *names: str) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in names) for row in found]


def test_every_planted_anomaly_is_found_and_nothing_else(
    troubled: tuple[Answers, ReportSummary, Lake],
) -> None:
    found = picked(rows(troubled[2], "anomalies"), "queue", "task", "metric", "first_hour", "hours")
    assert sorted(found, key=str) == sorted(
        [
            ("mail", "send", "jobs", instant(SURGE), 1),
            ("mail", "digest", "silence", instant(MISSED), 1),
            ("hooks", "ping", "wait", instant(STORM), 3),
            ("hooks", "deliver", "failed", instant(STORM), 3),
        ],
        key=str,
    )


def test_the_planted_regression_is_found_and_the_other_deploy_is_not_blamed(
    troubled: tuple[Answers, ReportSummary, Lake],
) -> None:
    (one,) = rows(troubled[2], "regressions")
    assert (one["queue"], one["task"], one["version"], one["direction"]) == (
        "reports",
        "build",
        "v2",
        "slower",
    )
    assert one["deployed_hour"] == instant(SLOWED)
    assert float(str(one["p50_after"])) / float(str(one["p50_before"])) == pytest.approx(2.2, rel=0.05)


def test_the_planted_storm_is_found_with_its_reason_and_whom_it_slowed(
    troubled: tuple[Answers, ReportSummary, Lake],
) -> None:
    (one,) = rows(troubled[2], "storms")
    assert (one["task"], one["first_hour"], one["hours"]) == ("deliver", instant(STORM), 3)
    assert (one["error_type"], one["reason"], one["reason_share"]) == ("HTTPError", "503 from ?", 1.0)
    assert str(one["slowed"]).startswith("ping (hooks) 90 s instead of")
    assert ";" not in str(one["slowed"])


def test_the_crowding_tenant_is_found(troubled: tuple[Answers, ReportSummary, Lake]) -> None:
    (one,) = rows(troubled[2], "crowding")
    assert (one["tenant"], one["queue"], one["hours"], one["big_hours"]) == (
        "acme",
        "mail",
        len(CROWD),
        len(CROWD),
    )
    assert one["others_wait"] == pytest.approx(60)


def test_the_planted_growth_is_forecast(troubled: tuple[Answers, ReportSummary, Lake]) -> None:
    day, *_ = rows(troubled[2], "capacity")
    assert (day["measure"], day["level"]) == ("the whole day", 0.8)
    assert day["growth_a_week"] == pytest.approx(0.08, rel=0.1)
    assert DAYS[-1] < date.fromisoformat(str(day["likely"])) < date(2025, 1, 20)
    assert str(day["earliest"]) <= str(day["likely"]) <= str(day["latest"])


def test_objectives_failures_costs_and_the_overview_add_up(
    troubled: tuple[Answers, ReportSummary, Lake],
) -> None:
    lake = troubled[2]
    (promise,) = rows(lake, "objectives")
    assert promise["attained"] == pytest.approx(0.97, abs=0.002)
    assert promise["burn"] == pytest.approx(3, rel=0.05)
    assert promise["worst_task"] == "send"
    first, *others = rows(lake, "failures")
    assert (first["reason"], first["news"]) == ("503 from ?", "new")
    assert {row["news"] for row in others} == {None}
    (costs,) = (table for one in troubled[0].sections for table in one.tables if table.name == "costs")
    assert "Cost, EUR" in [column.head for column in costs.columns]
    cost = rows(lake, "costs")
    assert [row["tenant"] for row in cost] == ["acme", "bolt", EVIL]
    assert sum(float(str(row["share"])) for row in cost) == pytest.approx(1)
    queues = {row["queue"]: row for row in rows(lake, "overview")}
    made = world(5, trouble=True)
    jobs = sum(values["jobs"][NOW:].sum() for (queue, _), values in made.tasks.items() if queue == "mail")
    assert queues["mail"]["jobs"] == jobs
    assert queues["reports"]["run_p50"] == pytest.approx(2.2, rel=0.2)


def test_a_quiet_shop_has_nothing_to_look_at(tmp_path: Path) -> None:
    found = answers(lake_of(tmp_path, world(11, trouble=False)), CONFIG)
    assert [one.name for one in found.sections if one.state is SectionState.LOOK] == []
    states = {one.name: one.state for one in found.sections}
    assert states == {
        "overview": SectionState.INFO,
        "anomalies": SectionState.OK,
        "regressions": SectionState.OK,
        "storms": SectionState.OK,
        "crowding": SectionState.OK,
        "capacity": SectionState.OK,
        "objectives": SectionState.OK,
        "failures": SectionState.OK,
        "costs": SectionState.INFO,
    }
    assert all(
        not table.rows
        for one in found.sections
        for table in one.tables
        if one.name in {"anomalies", "regressions", "storms", "crowding"}
    )


def bare(made: World) -> World:
    """The same without tenants and deploys, and nothing was promised."""
    return replace(made, tenants=[], deploys=[])


@pytest.mark.parametrize("days", [1, 9])
def test_a_young_lake_says_in_every_section_what_it_cannot_tell(tmp_path: Path, days: int) -> None:
    lake = lake_of(tmp_path, bare(world(1, trouble=False)), first=HOURS - days * 24)
    told = write(answers(lake, Config()), lake)
    sections = told.sections
    assert (told.until, told.days) == (DAYS[-1], days)
    expected = {
        "anomalies": "Not enough weeks",
        "regressions": "No deploys are known",
        "storms": "Not enough days" if days == 1 else "No retry storms",
        "crowding": "No job has a tenant",
        "capacity": f"Not enough days for a forecast: it takes 14, and the lake holds {days}",
        "costs": "No job of the reported week has a tenant",
    }
    for name, beginning in expected.items():
        assert sections[name].answer.startswith(beginning)
    assert Outline(Path(told.html).read_text(encoding="utf-8")).named("section")


def test_the_page_is_well_formed_and_loads_nothing(html: str) -> None:
    outline = Outline(html)
    assert html.startswith("<!DOCTYPE html>\n<html")
    assert "http" not in re.sub(r"HTTPError", "", html)
    assert {tag for tag, _ in outline.tags} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "image",
    } == set()
    assert "@import" not in html
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", html)
    for tag, attributes in outline.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "src"], tag
        assert (attributes.get("href") or "#").startswith("#")


def test_what_users_named_is_text_on_the_page(html: str) -> None:
    outline = Outline(html)
    shown = EVIL.replace("\x07", "\\x07")
    assert "<script>" not in html
    assert "\x07" not in html
    assert shown in outline.words
    assert [text for text in outline.text if text.strip() == shown]


def test_the_page_can_be_read_by_ear_and_by_key(html: str) -> None:
    outline = Outline(html)
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert outline.named("html")[0]["lang"] == "en"
    headings = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch(r"h\d", tag)]
    assert headings[0] == 1
    assert set(headings[1:]) == {2}
    for attributes in outline.named("svg"):
        assert attributes["role"] == "img"
        assert attributes["aria-label"]
    for attributes in outline.named("th"):
        assert attributes["scope"] in {"col", "row"}
    assert len(outline.named("caption")) == len(outline.named("table"))
    named = {(attributes.get("href") or "")[1:] for attributes in outline.named("a")}
    labels = {
        attributes["aria-labelledby"] for _, attributes in outline.tags if "aria-labelledby" in attributes
    }
    assert named | labels <= set(ids)
    scrolling = [attributes for attributes in outline.named("div") if attributes.get("class") == "scroll"]
    assert scrolling
    assert all(attributes["tabindex"] == "0" and attributes["role"] == "region" for attributes in scrolling)


def test_every_section_answers_first_and_says_what_was_compared(
    troubled: tuple[Answers, ReportSummary, Lake], html: str
) -> None:
    words = Outline(html).words
    sections = troubled[0].sections
    assert len(sections) == len(QUESTIONS)
    for one in sections:
        assert " ".join(one.answer.replace("\x07", "\\x07").split()) in words
        assert one.compared
        assert one.advice or one.state is SectionState.INFO


def test_the_summary_begins_with_what_to_look_at(html: str) -> None:
    states = re.findall(r'<li class="(\w+)">', html)
    assert states == sorted(states, key=lambda state: state != "look")
    assert states[0] == "look"


def test_tables_have_their_types_in_the_lake_even_when_they_are_empty(tmp_path: Path) -> None:
    columns = (
        ReportColumn("at", "At", ValueKind.HOUR),
        ReportColumn("day", "Day", ValueKind.DAY),
        ReportColumn("jobs", "Jobs", ValueKind.COUNT),
    )
    table = ReportTable(name="some", caption="Some", columns=columns, rows=((24, 1, 7), (None, None, None)))
    section = Section(
        name="some", title="Some?", state=SectionState.OK, answer="Yes.", compared="This.", tables=(table,)
    )
    lake = Lake(tmp_path)
    lake.create(Origin("1", 2, "pgqueue"))
    write(Answers(period=None, sections=(section,), weeks=8), lake)
    assert rows(lake, "some") == [
        {"at": datetime(1970, 1, 2, tzinfo=UTC), "day": date(1970, 1, 2), "jobs": 7},
        {"at": None, "day": None, "jobs": None},
    ]
    empty = replace(section, tables=(replace(table, rows=()),))
    write(Answers(period=None, sections=(empty,), weeks=8), lake)
    read = parquet.read_table(tmp_path / "report" / "some" / "some.parquet")
    assert read.num_rows == 0
    assert read.schema.types == [pa.timestamp("us", tz="UTC"), pa.date32(), pa.int64()]


def test_a_long_table_says_where_the_rest_is() -> None:
    table = ReportTable(
        name="some",
        caption="Some",
        columns=(ReportColumn("n", "N", ValueKind.COUNT),),
        rows=tuple((n,) for n in range(40)),
    )
    section = Section(
        name="some", title="Some?", state=SectionState.OK, answer="Yes.", compared="This.", tables=(table,)
    )
    outline = Outline(page([section], None, "Nobody's").decode())
    assert "The first 25 of 40; all are in report/some." in outline.words
    assert len(outline.named("tr")) == 26


@pytest.mark.parametrize("name", [EVIL, "$\\frac{", "日本語 ✉", "_hidden", "a" * 500, "\u202eevil", "\ud800"])
def test_a_picture_can_have_any_name_in_it(name: str) -> None:
    def draw(axes: "Axes") -> None:
        from pgqueue.spark.report.plots import hourly  # noqa: PLC0415 - as the page does

        hourly(0, 48, {name: {1: 2.0}, "other": {2: 1.0}}, "jobs")(axes)

    drawn = svg(Plot(title="t", says="s", draw=draw), "p")
    texts = [part for element in drawn.iter("text") for part in element.itertext()]
    assert any(
        text.strip() and text.strip()[:3] in {"<sc", "$\\f", "日本語", "_hi", "aaa", "\\u2", "\\ud"}
        for text in texts
    )


def test_the_page_goes_where_it_is_told(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create(Origin("1", 2, "pgqueue"))
    where = report(lake, Config(), out=tmp_path / "pages" / "week.html")
    assert where == str(tmp_path / "pages" / "week.html")
    assert "The lake is empty" in Path(where).read_text(encoding="utf-8")


def test_a_folder_for_a_page_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="is a folder: name the page's file"):
        report(Lake(tmp_path / "nothing is here"), Config(), out=tmp_path)


def test_a_page_that_cannot_be_written_is_not_the_lakes_fault(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create(Origin("1", 2, "pgqueue"))
    (tmp_path / "file").touch()
    with pytest.raises(LakeError, match="choose another --out"):
        report(lake, Config(), out=tmp_path / "file" / "week.html")


def test_the_command_marks_every_kind_of_answer() -> None:
    assert set(MARKS) == set(SectionState)


def test_a_day_that_was_not_rolled_up_is_refused(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, bare(world(1, trouble=False)), first=HOURS - 24)
    with pytest.raises(
        InvalidOption, match=r"until=2020-01-01: the lake has roll-ups of 2024-12-04 to 2024-12-04"
    ):
        answers(lake, Config(), until=date(2020, 1, 1))
    with pytest.raises(InvalidOption, match=r"weeks=0"):
        answers(lake, Config(), weeks=0)


def test_a_folder_that_is_no_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is no lake"):
        answers(Lake(tmp_path), Config())


def test_the_command_reports_on_a_lake(tmp_path: Path) -> None:
    made, real = lake_of(tmp_path / "made", world(1, trouble=False)), Lake(tmp_path / "lake")
    real.create(Origin("1", 2, "pgqueue"))
    hours = made.dataset("rollup/hours", SCHEMAS["hours"], DAYS[-1:]).to_table()
    real.replace_days("rollup/hours", DAYS[-1:], hours)  # the only table
    run = CliRunner()
    out = str(tmp_path / "page.html")
    told = run.invoke(main, ["pipeline", "report", "--lake", real.uri, "--out", out, "--json"])
    assert told.exit_code == 0, told.output
    summary = json.loads(told.stdout)
    assert (summary["html"], summary["until"], summary["days"]) == (out, "2024-12-04", 1)
    assert summary["sections"]["capacity"]["answer"].startswith("No worker is known")
    assert Outline(Path(out).read_text(encoding="utf-8")).named("table")


def test_the_command_refuses_before_any_spark(tmp_path: Path) -> None:
    run = CliRunner()
    for arguments, words in (
        (["--lake", str(tmp_path)], "is no lake"),
        (["--lake", str(tmp_path), "--until", "yesterday"], "'yesterday' is no day"),
        (["--config", str(tmp_path / "none.toml")], "cannot be read"),
    ):
        told = run.invoke(main, ["pipeline", "report", *arguments], env={"PGQUEUE_LAKE": None})
        assert told.exit_code == 2
        assert words in " ".join(told.output.split())


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (("jinja2", "matplotlib"), "jinja2 and matplotlib, and they are"),
        (("scipy",), "scipy, and it is"),  # matplotlib comes without it
    ],
)
@pytest.mark.parametrize("verb", ["report", "run"])
@pytest.mark.usefixtures("queue")
def test_all_but_the_page_works_without_the_extra_report(
    dsn: str, tmp_path: Path, verb: str, without: tuple[str, ...], said: str
) -> None:
    program = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({without}))\n"  # an import of them fails, as if they were not installed
        "from pkgutil import walk_packages\n"
        "import pgqueue.cli.pipeline, pgqueue.spark\n"
        "for package in pgqueue.spark, pgqueue.cli.pipeline:\n"
        "    for module in walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        __import__(module.name)\n"
        "from pgqueue.cli.main import main\n"
        "main()\n"
    )
    Lake(tmp_path).create(Origin("1", 2, "pgqueue"))
    words = ("--dsn", dsn, "pipeline", verb, "--lake", str(tmp_path))
    # Without Java, too: what the page lacks is said before Spark is started.
    without_java = os.environ | {"JAVA_HOME": str(tmp_path)}
    told = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False, env=without_java
    )
    assert told.returncode == 2
    assert f"a page needs {said} not installed" in told.stderr
    assert "pip install 'pgqueue-jobs[report]'" in told.stderr
    assert ask(dsn, "select count(*) from pgqueue.all_jobs") == [(0,)], "the chain has not begun"


def test_the_command_needs_neither_pyspark_nor_java(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", world(5, trouble=True))
    program = (
        "import sys\n"
        "sys.modules['pyspark'] = None\n"  # an import of it fails, as if it were not installed
        "from pgqueue.cli.main import main\n"
        "main()\n"
    )
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    told = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", program, "pipeline", "report", "--lake", lake.uri],
        capture_output=True, text=True, check=False, env=bare | {"PATH": str(tmp_path)},
    )  # fmt: skip
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.count("\n! ") == 7


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, bare(world(1, trouble=False)), first=HOURS - 24)
    (day,) = lake.entries("rollup/workers")
    (tmp_path / day.files[0].path).unlink()
    with pytest.raises(LakeError, match=f"cannot be reported on: .*{day.files[0].path}"):
        answers(lake, CONFIG)


def test_each_statement_is_asked_for_and_says_what_it_returns() -> None:
    folder = Path(rollups.__file__).parent
    asked = {
        name
        for file in folder.glob("*.py")
        for name in re.findall(r"rollups\.(?:rows|groups)\(\s*\"(\w+)\"", file.read_text(encoding="utf-8"))
    }
    assert asked == {file.stem for file in (folder / "statements").iterdir()}
    for file in (folder / "statements").iterdir():
        assert file.read_text(encoding="utf-8").startswith("-- "), file
