"""Flows as pictures: as text for a terminal, for Mermaid, and as SVG.

Members of a group are drawn in the order in which they can run. Names may hold any characters: in a terminal control
characters are escapes, in Mermaid all but a few characters are.
"""

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pgqueue.values.flows.flow import EdgeRule, NodeState
from pgqueue.values.flows.record import FlowRecord, NodeRecord, describe_counts, shorten_text
from pgqueue.values.payloads.storable import spelled_out

WIDTH = 80
"""Columns of a terminal."""
MARKS: Mapping[NodeState, str] = {
    NodeState.WAITING: "○",
    NodeState.RELEASED: "▶",
    NodeState.SUCCEEDED: "✓",
    NodeState.FAILED: "✗",
    NodeState.CANCELLED: "■",
    NodeState.SKIPPED: "»",
}
COLOURS: Mapping[NodeState, str] = {
    NodeState.WAITING: "#eceff1",
    NodeState.RELEASED: "#bbdefb",
    NodeState.SUCCEEDED: "#c8e6c9",
    NodeState.FAILED: "#ffcdd2",
    NodeState.CANCELLED: "#d7ccc8",
    NodeState.SKIPPED: "#fff9c4",
}
NAMED = 5
"""Nodes that a line names of those for which a node waits."""
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _.,:()-")


def draw_flow(flow: FlowRecord) -> str:
    """A flow for a terminal: a line for each node, its group's members below it, indented."""
    head = f"{flow.kind} {flow.id} {_line(flow.name)!r}: {flow.state}"
    head += "" if flow.key is None else f", key {_line(flow.key)!r}"
    head += f"; its jobs: {describe_counts(flow.counts or {}) or 'none'}"
    lines = textwrap.wrap(head, WIDTH, subsequent_indent="  ")
    children = members_of(flow.nodes)
    for root in children[None]:
        if root.why is not None and root.state is NodeState.WAITING:
            lines += _wrap_line(root.why, "  ")
        lines += _draw_node(root, children, "  ")
    return "\n".join(lines)


def mermaid(flow: FlowRecord) -> str:
    """A flow as Mermaid draws it."""
    children = members_of(flow.nodes)
    lines = ["flowchart LR"]
    for root in children[None]:
        lines += _mermaid(root, children, "  ")
    drawn_nodes = {node.id for node in flow.nodes}
    for node in flow.nodes:
        for edge in node.after:
            if edge.node in drawn_nodes:
                says = "" if edge.rule is EdgeRule.CANCEL else f"|{edge.rule}|"
                lines.append(f"  n{edge.node} -->{says} n{node.id}")
    lines += [
        f"  classDef {state} fill:{colour},stroke:#607d8b,color:#000" for state, colour in COLOURS.items()
    ]
    return "\n".join(lines)


def members_of(nodes: Sequence[NodeRecord]) -> dict[int | None, list[NodeRecord]]:
    """The members of each group in the order in which they can run; the root is that of None."""
    found: dict[int | None, list[NodeRecord]] = defaultdict(list)
    for node in nodes:
        found[node.parent].append(node)
    for some in found.values():
        levels = levels_of(some)
        some.sort(key=lambda node: (levels[node.id], node.place))
    return found


def levels_of(members: Sequence[NodeRecord]) -> dict[int, int]:
    """How many members of this group, one after the other, end before each of them at the least."""
    waiting = {node.id: {edge.node for edge in node.after} for node in members}
    behind: dict[int, list[int]] = defaultdict(list)
    for node, before in waiting.items():
        before.intersection_update(waiting)  # the others are not shown
        for one in before:
            behind[one].append(node)
    levels = {node: 0 for node, before in waiting.items() if not before}
    ahead = [*levels]
    for one in ahead:  # it grows meanwhile
        for node in behind[one]:
            waiting[node].discard(one)
            if not waiting[node]:
                levels[node] = levels[one] + 1
                ahead.append(node)
    return levels


def title(node: NodeRecord, *, listed: bool) -> str:
    """What a node is called in a drawing; of a group whose members are not drawn, also how many there are."""
    label = _line(node.label)
    if not node.kind.is_group or listed:
        return label
    return f"{label} ({sum(node.members.values()):,})"


def _draw_node(
    node: NodeRecord, children: Mapping[int | None, list[NodeRecord]], indent: str
) -> Iterator[str]:
    members = children.get(node.id, [])
    if node.parent is not None:
        yield from _wrap_line(_node_line(node, listed=bool(members)), indent)
        indent += "  "
    elif node.members and not members:
        yield from _wrap_line(_node_line(node, listed=False), indent)
    for member in members:
        yield from _draw_node(member, children, indent)


def _node_line(node: NodeRecord, *, listed: bool) -> str:
    said = f"{MARKS[node.state]} {title(node, listed=listed)}"
    if node.after:
        names = [shorten_text(_line(edge.label), 24) for edge in node.after[:NAMED]]
        more = f" and {len(node.after) - NAMED:,} others" if len(node.after) > NAMED else ""
        said += f" ← {', '.join(names)}{more}"
    if node.kind.is_group:
        return f"{said}: {node.why if node.state is NodeState.WAITING else describe_counts(node.members) or node.state}"
    return f"{said}: {node.why or node.state}"


def _wrap_line(line: str, indent: str) -> list[str]:
    return textwrap.wrap(
        _line(line), max(WIDTH, len(indent) + 40), initial_indent=indent, subsequent_indent=f"{indent}    "
    )


def _mermaid(node: NodeRecord, children: Mapping[int | None, list[NodeRecord]], indent: str) -> Iterator[str]:
    members = children.get(node.id, [])
    label = _escape(title(node, listed=bool(members)))
    if members:
        yield f'{indent}subgraph n{node.id}["{label}"]'
        for member in members:
            yield from _mermaid(member, children, f"{indent}  ")
        yield f"{indent}end"
        yield f"{indent}class n{node.id} {node.state}"
    else:
        said = describe_counts(node.members) if node.kind.is_group else node.said
        yield f'{indent}n{node.id}["{label}: {_escape(said)}"]:::{node.state}'


def _line(text: str) -> str:
    return shorten_text(spelled_out(text), 200)


def _escape(text: str) -> str:
    """Return a text as it stands between quotes in Mermaid."""
    return "".join(one if one in _PLAIN else f"#{ord(one)};" for one in shorten_text(text))


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
class Box:
    """A node with its size and place, in pixels, and the boxes in it."""

    node: NodeRecord
    width: float
    height: float
    x: float = 0
    y: float = 0
    inside: "tuple[Box, ...]" = ()


def svg(flow: FlowRecord) -> str:
    """A flow as an SVG document."""
    boxes = lay_out(flow)
    root = next(iter(boxes.values()))
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


def lay_out(flow: FlowRecord) -> dict[int, Box]:
    """A box for each node, by the node's id, the one around all first. Members of one level stand in a column."""
    children = members_of(flow.nodes)
    (root,) = (_laid_out(node, children) for node in children[None])
    _place(root, 8, 8)
    return {box.node.id: box for box in _all(root)}


def _laid_out(node: NodeRecord, children: Mapping[int | None, list[NodeRecord]]) -> Box:
    """Place a node and what is in it, from (0, 0) on: members of one level stand in a column."""
    members = children.get(node.id)
    if not members:
        return Box(node, BOX_WIDTH, BOX_HEIGHT)
    levels = levels_of(members)
    columns: dict[int, list[Box]] = {}
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
    return Box(node, x - GAP_ACROSS + EDGE, lowest + EDGE, inside=inside)


def _place(box: Box, x: float, y: float) -> None:
    """Move a box and all in it."""
    box.x, box.y = box.x + x, box.y + y
    for one in box.inside:
        _place(one, box.x, box.y)


def _all(box: Box) -> Iterator[Box]:
    yield box
    for one in box.inside:
        yield from _all(one)


def _draw_box(box: Box, *, name: str | None) -> str:
    node = box.node
    label = name if name is not None else title(node, listed=bool(box.inside))
    said = describe_counts(node.members) if node.kind.is_group else node.said
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


def _edges(boxes: Mapping[int, Box]) -> Iterator[str]:
    for box in boxes.values():
        for edge in box.node.after:
            if (before := boxes.get(edge.node)) is not None:
                dashed = "" if edge.rule is EdgeRule.CANCEL else ' stroke-dasharray="4 3"'
                yield (
                    f'<path d="{curve(before, box)}" fill="none" stroke="#607d8b"{dashed} marker-end="url(#to)">'
                    f"<title>{_text(f'if it fails: {edge.rule}')}</title></path>"
                )


def curve(before: Box, after: Box) -> str:
    """The path of an edge between two boxes."""
    x1, y1 = before.x + before.width, before.y + before.height / 2
    x2, y2 = after.x, after.y + after.height / 2
    bend = max(20.0, (x2 - x1) / 2)
    return f"M{x1:.0f} {y1:.0f}C{x1 + bend:.0f} {y1:.0f} {x2 - bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"


def _text(text: str) -> str:
    # XML cannot hold control characters.
    return escape("".join(one if one.isprintable() else "\ufffd" for one in text))
