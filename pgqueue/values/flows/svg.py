"""A flow as an SVG picture: boxes from left to right in the order in which they can run, groups around their members."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape

from pgqueue.values.flows.drawing import COLOURS, levels_of, members_of, title
from pgqueue.values.flows.flow import EdgeRule, NodeState
from pgqueue.values.flows.record import FlowRecord, NodeRecord, describe_counts, shorten_text

BOX_WIDTH, BOX_HEIGHT = 190, 44
GAP_ACROSS, GAP_DOWN = 50, 14
EDGE, HEAD = 14, 24
"""Pixels around the members of a group, and above them for its name."""
LONGEST_LABEL = 26
"""Characters that fit a box."""
HEADER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" '
    'font-family="sans-serif" font-size="12">'
)
ARROW = (
    '<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#607d8b"/></marker></defs>'
)


@dataclass(slots=True)
class _Box:
    """A node with its size and place, in pixels, and the boxes in it."""

    node: NodeRecord
    width: float
    height: float
    x: float = 0
    y: float = 0
    inside: "tuple[_Box, ...]" = ()


def svg(flow: FlowRecord) -> str:
    """A flow as an SVG document."""
    children = members_of(flow.nodes)
    (root,) = (_laid_out(node, children) for node in children[None])
    _place(root, 8, 8)
    boxes = {box.node.id: box for box in _all(root)}
    size = root.width + 16, root.height + 16
    return "\n".join(
        [
            HEADER.format(*size),
            f"<title>{_text(f'{flow.kind} {flow.id} {flow.name}: {flow.state}')}</title>",
            ARROW,
            *(_draw_box(box, name=flow.name if box is root else None) for box in boxes.values()),
            *_edges(boxes),
            "</svg>",
        ]
    )


def _laid_out(node: NodeRecord, children: Mapping[int | None, list[NodeRecord]]) -> _Box:
    """Place a node and what is in it, from (0, 0) on: members of one level stand in a column."""
    members = children.get(node.id)
    if not members:
        return _Box(node, BOX_WIDTH, BOX_HEIGHT)
    levels = levels_of(members)
    columns: dict[int, list[_Box]] = {}
    for member in members:
        columns.setdefault(levels[member.id], []).append(_laid_out(member, children))
    x = float(EDGE)
    lowest = 0.0
    for boxes in columns.values():
        y = float(HEAD)
        for box in boxes:
            box.x, box.y = x, y
            y += box.height + GAP_DOWN
        lowest = max(lowest, y - GAP_DOWN)
        x += max(box.width for box in boxes) + GAP_ACROSS
    inside = tuple(box for boxes in columns.values() for box in boxes)
    return _Box(node, x - GAP_ACROSS + EDGE, lowest + EDGE, inside=inside)


def _place(box: _Box, x: float, y: float) -> None:
    """Move a box and all in it."""
    box.x, box.y = box.x + x, box.y + y
    for one in box.inside:
        _place(one, box.x, box.y)


def _all(box: _Box) -> Iterator[_Box]:
    yield box
    for one in box.inside:
        yield from _all(one)


def _draw_box(box: _Box, *, name: str | None) -> str:
    node = box.node
    label = name if name is not None else title(node, listed=bool(box.inside))
    said = describe_counts(node.members) if node.kind.is_group else str(node.job_state or node.state)
    tip = f"{label}: {node.why or said}"
    fill = "#fafafa" if box.inside else COLOURS[node.state]
    line = COLOURS[node.state] if box.inside and node.state is not NodeState.WAITING else "#607d8b"
    words = [
        f'<text x="{box.x + 8:.0f}" y="{box.y + 17:.0f}">{_text(shorten_text(label, LONGEST_LABEL))}</text>'
    ]
    if not box.inside:
        words.append(
            f'<text x="{box.x + 8:.0f}" y="{box.y + 34:.0f}" fill="#455a64" font-size="10">{_text(shorten_text(said, 34))}</text>'
        )
    return (
        f'<g><title>{_text(tip)}</title><rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" '
        f'height="{box.height:.0f}" rx="6" fill="{fill}" stroke="{line}"/>{"".join(words)}</g>'
    )


def _edges(boxes: Mapping[int, _Box]) -> Iterator[str]:
    for box in boxes.values():
        for edge in box.node.after:
            if (before := boxes.get(edge.node)) is not None:
                dashed = "" if edge.rule is EdgeRule.CANCEL else ' stroke-dasharray="4 3"'
                yield (
                    f'<path d="{_curve(before, box)}" fill="none" stroke="#607d8b"{dashed} marker-end="url(#to)">'
                    f"<title>{_text(f'if it fails: {edge.rule}')}</title></path>"
                )


def _curve(before: _Box, after: _Box) -> str:
    x1, y1 = before.x + before.width, before.y + before.height / 2
    x2, y2 = after.x, after.y + after.height / 2
    bend = max(20.0, (x2 - x1) / 2)
    return f"M{x1:.0f} {y1:.0f}C{x1 + bend:.0f} {y1:.0f} {x2 - bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"


def _text(text: str) -> str:
    # XML cannot hold control characters.
    return escape("".join(one if one.isprintable() else "\ufffd" for one in text))
