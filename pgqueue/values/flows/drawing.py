"""Flows as text: for a terminal, and for Mermaid.

Members of a group are drawn in the order in which they can run. Names may hold any characters: in a terminal control
characters are escapes, in Mermaid all but a few characters are.
"""

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pgqueue.values.flows.flow import EdgeRule, NodeState
from pgqueue.values.flows.record import FlowRecord, NodeRecord, describe_counts, shorten_text

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
        said = describe_counts(node.members) if node.kind.is_group else str(node.job_state or node.state)
        yield f'{indent}n{node.id}["{label}: {_escape(said)}"]:::{node.state}'


def _line(text: str) -> str:
    return shorten_text(
        "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text), 200
    )


def _escape(text: str) -> str:
    """Return a text as it stands between quotes in Mermaid."""
    return "".join(one if one in _PLAIN else f"#{ord(one)};" for one in shorten_text(text))
