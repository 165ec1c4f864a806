"""A workflow as a picture whose nodes are links, and bars of jobs by their states, as SVG. Pure.

Colours are the CSS classes of states, the same as in tables, since the dashboard's policy forbids styles in pages. Where a node stands
is decided in :mod:`pgqueue.values.flows.drawing`, which nodes are one in :mod:`pgqueue.values.flows.folding`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from markupsafe import Markup

from pgqueue.values.flows.drawing import LONGEST_LABEL, Box, curve, lay_out
from pgqueue.values.flows.flow import BUILTIN, WAIT, EdgeRule
from pgqueue.values.flows.folding import FoldedFlow, words_in_order
from pgqueue.values.flows.record import NodeRecord, shorten_text
from pgqueue.values.payloads.storable import spelled_out

BAR_WIDTH, BAR_HEIGHT = 174, 5
"""Pixels of a bar in a node."""
SMALL: Final = 31
"""Characters of the line below a node's name."""
ENDED: Final = frozenset({"succeeded", "failed", "dead", "cancelled", "skipped"})


def progress_text(counts: Mapping[str, int]) -> str:
    """How far jobs are: ``22 of 30 done``, and what is wrong with the others."""
    whole = sum(counts.values())
    done = counts.get("succeeded", 0) + counts.get("skipped", 0)
    wrong = [(state, counts[state]) for state in ("failed", "dead", "cancelled") if counts.get(state)]
    return ", ".join([f"{done:,} of {whole:,} done", *(f"{count:,} {state}" for state, count in wrong)])


def bar(counts: Mapping[str, int]) -> Markup:
    """Jobs by their states, as a bar for a table; what is done first. The text beside it says the same."""
    rects = Markup("").join(_rects(counts, 0, 0, 100, 8))
    return Markup(
        '<svg class="share" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(rects)


def picture(folded: FoldedFlow, address: Callable[[NodeRecord], str | None], label: str) -> Markup:
    """A workflow as an SVG element.

    Args:
        folded: the workflow.
        address: the page of a node's job, or the place of its jobs in the table; None: it is no link.
        label: what the picture is of.
    """
    boxes = lay_out(folded.flow)
    root = next(iter(boxes.values()))
    size = round(root.width + 16), round(root.height + 16)
    parts = [_drawn(box, folded, address) for box in boxes.values() if box is not root or len(boxes) == 1]
    return Markup(
        '<svg class="flow" role="group" aria-label="{label}" width="{w}" height="{h}" viewBox="0 0 {w} {h}">'
        '<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>{edges}{parts}</svg>'
    ).format(
        label=label, w=size[0], h=size[1], edges=Markup("").join(_edges(boxes)), parts=Markup("").join(parts)
    )


def node_words(node: NodeRecord) -> str:
    """What a node is besides its name."""
    if node.task in BUILTIN:
        return "waits for a signal" if node.task == WAIT else ""
    return node.task if node.task and node.task != node.label else ""


def _drawn(box: Box, folded: FoldedFlow, address: Callable[[NodeRecord], str | None]) -> Markup:
    node, counts = box.node, folded.counts.get(box.node.id)
    words = node.said if counts is None else progress_text(counts)
    state = words_in_order(counts)[0][0] if counts else node.said
    drawn = Markup('<g class="node {} {}"><title>{}</title>{}</g>').format(
        state.replace(" ", "-"),
        "around" if box.inside else "one",
        f"{_text(node.label)}: {_text(node.why or '') if node.why and counts is None else words}",
        _inside(box, words, counts),
    )
    link = None if box.inside else address(node)
    return drawn if link is None else Markup('<a href="{}">{}</a>').format(link, drawn)


def _inside(box: Box, words: str, counts: Mapping[str, int] | None) -> Markup:
    x, y = round(box.x), round(box.y)
    label = shorten_text(_text(box.node.label), LONGEST_LABEL)
    parts = [
        Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="6"/>').format(
            x, y, round(box.width), round(box.height)
        ),
        Markup('<text x="{}" y="{}">{}</text>').format(x + 8 if box.inside else x + 22, y + 17, label),
    ]
    if not box.inside:
        task = "" if counts else _end_of(_text(node_words(box.node)), SMALL - len(words) - 3)
        said = f"{words} · {task}" if task else words
        parts += [
            Markup('<circle cx="{}" cy="{}" r="4"/>').format(x + 12, y + 13),
            Markup('<text class="small" x="{}" y="{}">{}</text>').format(
                x + 8, y + 31, shorten_text(said, SMALL)
            ),
        ]
        if counts is not None:
            parts += _rects(counts, x + 8, y + 35, BAR_WIDTH, BAR_HEIGHT)
    return Markup("").join(parts)


def _rects(counts: Mapping[str, int], x: float, y: float, width: float, height: float) -> Iterator[Markup]:
    whole = sum(counts.values())
    yield Markup('<rect class="rest" x="{}" y="{}" width="{}" height="{}"/>').format(x, y, width, height)
    for state, count in reversed(words_in_order(counts)):
        wide = width * count / whole
        yield Markup('<rect class="part {}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(
            state.replace(" ", "-"), x, y, wide, height
        )
        x += wide


def _edges(boxes: Mapping[int, Box]) -> Iterator[Markup]:
    for box in boxes.values():
        for edge in box.node.after:
            if (before := boxes.get(edge.node)) is not None:
                yield Markup(
                    '<path class="edge{}" d="{}" marker-end="url(#to)"><title>{}</title></path>'
                ).format(
                    "" if edge.rule is EdgeRule.CANCEL else " other",
                    curve(before, box),
                    f"if it fails: {edge.rule.value}",
                )


def _end_of(text: str, most: int) -> str:
    """The end of a name, which says most: ``…imports.load``."""
    return text if len(text) <= most else f"…{text[len(text) - most + 1 :]}"


def _text(text: str) -> str:
    return spelled_out(text)
