"""A comparison in words and in the cells of a table, for the shell and for a page; and the page, with its pictures.

``whatif.html``, among the templates of the report, decides how the page looks.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pgqueue.spark.report import words
from pgqueue.spark.report.rendering import LINES, WARNING, place_of, render_page
from pgqueue.spark.report.section import Plot
from pgqueue.spark.whatif.trust import FIGURES, WAITED_LESS, WAITED_LONGER

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from pgqueue.spark.whatif.course import WaitTimes
    from pgqueue.spark.whatif.whatif import ReplayComparison, ReplayPoint, ReplayRow

UNKNOWN = "?"
HINTS = {
    WAITED_LONGER: " (a limit without --had-limit, a pause, jobs that waited for other jobs, retries)",
    WAITED_LESS: " (workers that the lake does not know, weights that are not those of --queues)",
}
HEADS = ("queue", "task", "jobs", "wait p50", "p95", "p99", "longest", "late")
"""The columns of the table of tasks."""
SHOWN = 50
"""Rows of the table of tasks on the page; ``--json`` has all."""
WAS, WOULD_BE = (LINES[1], "--", "was"), (LINES[0], "-", "would be")
SECONDS_A_DAY = 86_400
MOST_LABELS = 8


def answer(found: "ReplayComparison") -> Iterator[str]:
    """What would be, beside what was, in sentences."""
    days = str(found.first) if found.first == found.last else f"{found.first} to {found.last}"
    p50, p95, p99, longest, late = _pairs(found.was, found.would_be, found.doubts)
    yield f"{words.some(found.jobs, 'job')} of {days}; {'; '.join(map(words.clean, found.settings))}."
    yield (
        f"Waits, was \N{RIGHTWARDS ARROW} would be: p50 {p50}, p95 {p95}, p99 {p99}, longest {longest}; "
        f"late (longer than {words.span(found.late_after)}) {late}."
    )
    was, would_be = found.load_was, found.load_would_be
    yield (
        f"Most waiting at once {_pair(words.count(was.backlog), words.count(would_be.backlog))}; most running at once "
        f"{_pair(words.count(was.running), words.count(would_be.running))}; {words.share(found.busy)} of the slots' time is "
        f"busy; the last job ends {_pair(f'{was.last_end:%Y-%m-%d %H:%M:%S}', f'{would_be.last_end:%Y-%m-%d %H:%M:%S}')} UTC."
    )


def checked(found: "ReplayComparison") -> Iterator[str]:
    """How far the replay is off for the settings that the jobs had, and which figures are not predicted."""
    check = found.check
    if check is None:
        yield (
            "The lake knows no worker of these jobs, so the settings that they had are not replayed: how far these figures are off "
            "is not known."
        )
        return
    recorded, replayed = (
        "/".join(words.span(getattr(one, name)) for name in FIGURES) for one in (found.was, check.replayed)
    )
    off = ", ".join(
        f"{name} {words.share(one) if one is not None else 'all'}" for name, one in check.off.items()
    )
    yield (
        f"The same settings replayed (at most {words.some(check.workers, 'worker')} with {words.some(check.slots, 'slot')} at once): "
        f"{'/'.join(FIGURES)} recorded {recorded}, replayed {replayed}; off by {off}."
    )
    start = "/".join(words.span(getattr(check.start, name)) for name in FIGURES) if check.start else None
    yield (
        f"Measured: a start on a free slot takes {start or 'a time that is not known'}; {words.span(check.gap)} pass between two jobs "
        f"on a slot, and {words.span(check.recorded_in)} on a place of a limit, while jobs wait."
    )
    for why in dict.fromkeys(found.doubts.values()):
        yield f"{', '.join(name for name, one in found.doubts.items() if one == why)}: {why}{HINTS.get(why, '')}."
    if any(row.doubts for row in found.tasks):
        yield f"{UNKNOWN} in the table: not predicted, for one of these reasons; --json has each."


def cells(row: "ReplayRow") -> list[str]:
    """The cells of a task's row, behind its queue and its name."""
    return [words.count(row.jobs), *_pairs(row.was, row.would_be, dict.fromkeys(row.doubts, UNKNOWN))]


def not_known(found: "ReplayComparison") -> Iterator[str]:
    """What the replay leaves out."""
    left = found.left_out
    if left.never_started:
        yield f"Left out: {words.some(left.never_started, 'job')} that ended without an attempt."
    if left.not_served:
        yield f"Left out: {words.some(left.not_served, 'job')} of queues that these workers do not serve."
    if left.earlier_attempts:
        yield (
            f"Left out: {words.some(left.earlier_attempts, 'attempt')} before the last one of a job; the lake does not say how "
            "long these ran."
        )


def write(found: "ReplayComparison", out: str) -> None:
    """Write the page.

    Args:
        found: the comparison.
        out: a file, or a URI of an object store.

    Raises:
        LakeError: it cannot be written.
    """
    folder, name = place_of(out)
    folder.write(name, page(found))


def page(found: "ReplayComparison") -> bytes:
    """The comparison as HTML."""
    left = f" The first {SHOWN} of {len(found.tasks):,} tasks." if len(found.tasks) > SHOWN else ""
    sides = ["text", "text", *["number"] * (len(HEADS) - 2)]
    return render_page(
        "whatif",
        title=f"What if: {', '.join(words.clean(one) for one in found.settings)}",
        answers=[*answer(found), *checked(found)],
        plots=_plots(found),
        caption=f"Waits by task: was, and would be.{left}",
        heads=list(zip(sides, HEADS, strict=True)),
        rows=[
            list(zip(sides, (words.clean(one.queue), words.clean(one.task), *cells(one)), strict=True))
            for one in found.tasks[:SHOWN]
        ],
        not_known=not_known(found),
    )


def _plots(found: "ReplayComparison") -> list[Plot]:
    step = words.span(found.seconds_a_point)
    return [
        Plot(
            title=f"95% of the jobs that were ready within {step} waited no longer, in seconds",
            says=f"Waits over time: {_peaks(found, lambda one: one.p95 or 0, 's')}.",
            draw=_over_time(found, lambda one: one.p95, "seconds"),
        ),
        Plot(
            title=f"Most jobs that waited at once, within {step}",
            says=f"Waiting jobs over time: {_peaks(found, lambda one: one.backlog, 'jobs')}.",
            draw=_over_time(found, lambda one: one.backlog, "jobs"),
        ),
        Plot(
            title=f"Jobs that ran at once, on average within {step}",
            says=f"Running jobs over time, beside {found.slots} slots: {_peaks(found, lambda one: one.running, 'jobs')}.",
            draw=_over_time(found, lambda one: one.running, "jobs", level=found.slots),
        ),
    ]


def _peaks(found: "ReplayComparison", value: "Callable[[ReplayPoint], float]", unit: str) -> str:
    was, would_be = (
        max(map(value, points), default=0.0) for points in (found.points_was, found.points_would_be)
    )
    return f"the highest was {words.number(was)} {unit}, and would be {words.number(would_be)} {unit}"


def _over_time(
    found: "ReplayComparison",
    value: "Callable[[ReplayPoint], float | None]",
    unit: str,
    *,
    level: float | None = None,
) -> "Callable[[Axes], None]":
    def draw(axes: "Axes") -> None:
        lines: Sequence[tuple[Sequence[ReplayPoint], tuple[str, str, str]]] = (
            (found.points_was, WAS),
            (found.points_would_be, WOULD_BE),
        )
        top = 1e-9
        for points, (colour, dashes, label) in lines:
            known = [(one.at.timestamp(), at) for one in points if (at := value(one)) is not None]
            mark = "." if len(known) == 1 else None
            axes.plot(
                [at for at, _ in known],
                [height for _, height in known],
                color=colour,
                ls=dashes,
                marker=mark,
                label=label,
            )
            top = max(top, *(height for _, height in known), 0.0)
        if level is not None and level <= 2 * top:
            top = max(top, level)
            axes.axhline(level, color=WARNING, lw=1.1, label="slots")
        _times(axes, [one.at for one in found.points_was])
        axes.set_ylim(0, top * 1.1)
        axes.set_ylabel(unit)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, borderaxespad=0.2)

    return draw


def _times(axes: "Axes", instants: Sequence[datetime]) -> None:
    first, last = instants[0], instants[-1]
    if (last - first).total_seconds() > 2 * SECONDS_A_DAY:
        midnights = [one for one in instants if one.timestamp() % SECONDS_A_DAY == 0] or [first]
        shown, form = midnights[:: -(-len(midnights) // MOST_LABELS)], "%a %d %b"
    else:
        shown, form = list(instants[:: -(-len(instants) // MOST_LABELS)]), "%H:%M:%S"
    axes.set_xticks([one.timestamp() for one in shown], [f"{one:{form}}" for one in shown], ha="left")


def _pairs(was: "WaitTimes", would_be: "WaitTimes", doubts: Mapping[str, str]) -> list[str]:
    """Each figure as recorded and in the replay; what is in doubt says so in place of the figure."""
    spans = [
        _pair(words.span(getattr(was, name)), doubts.get(name) or words.span(getattr(would_be, name)))
        for name in (*FIGURES, "max")
    ]
    return [*spans, _pair(words.share(was.late), words.share(would_be.late))]


def _pair(was: str, would_be: str) -> str:
    return f"{was} \N{RIGHTWARDS ARROW} {would_be}"
