"""Processes below those that started them: a forest with nothing in it that joins nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import dtk
from dtk_cli.text import Screen


class Node:
    """A process; `process` is None for one that is only there because it started several of the others."""

    def __init__(self, pid: int, process: dtk.Process | None = None, name: str = "") -> None:
        self.pid = pid
        self.process = process
        self.name = name
        self.children: list[Node] = []


def branches(processes: Iterable[dtk.Process], screen: Screen, live: bool) -> Iterator[tuple[Node, str]]:
    """Each node with the lines to draw before it. On the live machine the ancestors of processes are asked for."""
    nodes = {process.pid: Node(process.pid, process) for process in processes}
    roots: list[Node] = []
    for node in list(nodes.values()):
        _attach(node, nodes, roots, live)
    for root in roots:
        yield from _walk(_joined(root), screen, "", "")


def _attach(node: Node, nodes: dict[int, Node], roots: list[Node], live: bool) -> None:
    """Hang it, and what comes above it, below its parent."""
    for pid, name in _ancestors(node, live):
        parent = nodes.get(pid)
        known = parent is not None
        parent = nodes.setdefault(pid, Node(pid, None, name))
        parent.children.append(node)
        if known:
            return
        node = parent
    roots.append(node)


def _ancestors(node: Node, live: bool) -> Iterator[tuple[int, str]]:
    """Process id and name of its parent, grandparent and so on, without init; on other machines of the parent alone."""
    process = node.process
    if process is None or process.parent is None or process.parent <= 1:
        return
    if not live:
        yield process.parent, "(starts them)"
        return
    import psutil

    try:
        for parent in psutil.Process(process.pid).parents():
            if parent.pid > 1:
                yield parent.pid, parent.name()
    except psutil.Error:  # it has ended
        return


def _joined(node: Node) -> Node:
    """The node without those above it that only lead to one other."""
    while node.process is None and len(node.children) == 1:
        node = node.children[0]
    node.children = [_joined(child) for child in node.children]
    return node


def _walk(node: Node, screen: Screen, prefix: str, below: str) -> Iterator[tuple[Node, str]]:
    yield node, prefix
    for child in node.children:
        is_last = child is node.children[-1]
        branch, space = (screen.last, "   ") if is_last else (screen.branch, screen.stem)
        yield from _walk(child, screen, f"{below}{branch} ", below + space)
